"""Responses about the service: supported conversions, tools, health, version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from storage.field_types import Count
from web.api.values import PublicMeta


class Pair(TypedDict):
    """A supported conversion."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]


class Formats(TypedDict):
    """All supported conversions."""

    conversions: list[Pair]
    by_input_format: Annotated[dict[str, list[str]], Field(examples=[{"jpeg": ["png", "webp"]}])]
    total: Count


class Conversion(TypedDict):
    """A supported conversion: its steps and its options."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]
    path: Annotated[
        list[str],
        Field(
            description="The steps, without those that only options add.",
            examples=[["jpeg -> raster", "raster -> webp"]],
        ),
    ]
    losses: Annotated[
        list[str],
        Field(
            description="`detail`: lossy encoding or fewer colors. `structure`: text, vectors, layers or pages become "
            "pixels.",
            examples=[["detail"]],
        ),
    ]
    credits: Annotated[int, Field(examples=[1])]
    options: Annotated[
        dict[str, Any],
        Field(
            description="The JSON Schema (2020-12) of an object with the options of the conversion.",
            examples=[{"type": "object", "properties": {"quality": {"type": "integer", "default": 80}}}],
        ),
    ]


class ToolOptionName(TypedDict):
    """A request field of the tool's endpoint, which `options` of the response describes."""

    name: Annotated[str, Field(examples=["pages"])]
    ref: NotRequired[
        Annotated[
            str,
            Field(description="The key of the description, unless it is the name.", examples=["pages-2"]),
        ]
    ]


class ToolOption(TypedDict):
    """The description of a request field of one or more tools."""

    name: Annotated[str, Field(examples=["quality"])]
    type: Literal["integer", "number", "string", "boolean", "array", "object"]
    required: bool
    description: str
    example: Annotated[int | float | str | bool | list[Any] | dict[str, Any], Field(examples=[80])]
    schema: Annotated[
        dict[str, Any], Field(description="The JSON Schema of the value.", examples=[{"type": "integer"}])
    ]
    minimum: NotRequired[Annotated[float, Field(examples=[1])]]
    maximum: NotRequired[Annotated[float, Field(examples=[100])]]
    output_formats: NotRequired[
        Annotated[list[str], Field(description="The output formats that it applies to.", examples=[["webp"]])]
    ]


class FileCount(TypedDict):
    """The number of files that a tool takes."""

    minimum: Annotated[int, Field(examples=[2])]
    maximum: Annotated[int, Field(examples=[20])]


class Tool(TypedDict):
    """A conversion tool."""

    id: Annotated[str, Field(examples=["convert-jpeg"])]
    name: Annotated[str, Field(examples=["Convert JPEG"])]
    category: Annotated[Literal["image", "document"], Field(examples=["image"])]
    description: str
    endpoint: Annotated[str, Field(examples=["/api/v1/convert"])]
    credits: Annotated[int, Field(ge=0, examples=[1])]
    input_formats: Annotated[list[str], Field(examples=[["jpeg"]])]
    output_formats: Annotated[list[str], Field(examples=[["png", "webp"]])]
    options: list[ToolOptionName]
    files: NotRequired[FileCount]
    plugin: Annotated[str, Field(examples=["jpeg"])]


class Tools(TypedDict):
    """All conversion tools."""

    tools: list[Tool]
    total: Count
    options: Annotated[dict[str, ToolOption], Field(description="The descriptions of the options of all tools.")]


class Alive(TypedDict):
    """The process responds."""

    status: Literal["ok"]


@dataclass(frozen=True)
class Cluster:
    """The cluster that runs conversions, as of a few seconds ago."""

    connected: Annotated[bool, Field(description="Whether the scheduler responds.")] = False
    workers: Annotated[
        Mapping[str, int], Field(description="Number of workers by version.", examples=[{"1.1.0": 3}])
    ] = field(default_factory=dict)
    usable: Annotated[int, Field(description="Workers with the version and plugins of this server.", examples=[3])] = 0
    slots: Annotated[int, Field(description="Conversions that usable workers run at the same time.", examples=[12])] = 0
    running: Annotated[int, Field(description="Running conversions of all servers.", examples=[2])] = 0
    waiting: Annotated[int, Field(description="Conversions of all servers that wait for a worker.", examples=[0])] = 0
    retries: Annotated[
        int, Field(description="Conversions of this server that were repeated because their worker died.", examples=[0])
    ] = 0

    @property
    def unusable(self) -> int:
        """Number of workers with another installation than the server."""
        return sum(self.workers.values()) - self.usable


class Ready(TypedDict):
    """The process can serve requests."""

    status: Annotated[Literal["ok", "degraded"], Field(description="`degraded`: an optional part fails.")]
    reasons: NotRequired[Annotated[list[str], Field(description="The failing parts.")]]
    cluster: NotRequired[Cluster]


class Release(TypedDict):
    """The version of the service."""

    name: Literal["convertd"]
    version: Annotated[str, Field(examples=["1.1.0"])]
    api: Literal["v1"]
    meta: PublicMeta
