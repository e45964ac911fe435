"""The service itself: what it can do, and how it is."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from web.api.schemas.common import Count, RequestId


class Pair(TypedDict):
    """A conversion that works on this server."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]


class Formats(TypedDict):
    """Every supported pair."""

    conversions: list[Pair]
    by_input_format: Annotated[dict[str, list[str]], Field(examples=[{"jpeg": ["png", "webp"]}])]
    total: Count


class ToolOption(TypedDict):
    """A field that the tool's endpoint takes."""

    name: Annotated[str, Field(examples=["quality"])]
    type: Literal["integer", "string"]
    required: bool
    description: str
    example: Annotated[int | str, Field(examples=[80])]
    minimum: NotRequired[Annotated[int, Field(examples=[1])]]
    maximum: NotRequired[Annotated[int, Field(examples=[100])]]
    output_formats: NotRequired[Annotated[list[str], Field(description="Those it matters for.", examples=[["webp"]])]]


class FileCount(TypedDict):
    """How many files a tool takes."""

    minimum: Annotated[int, Field(examples=[2])]
    maximum: Annotated[int, Field(examples=[20])]


class Tool(TypedDict):
    """Something that can be done to files."""

    id: Annotated[str, Field(examples=["convert-jpeg"])]
    name: Annotated[str, Field(examples=["Convert JPEG"])]
    category: Annotated[Literal["image", "document"], Field(examples=["image"])]
    description: str
    endpoint: Annotated[str, Field(examples=["/api/v1/convert"])]
    credits: Annotated[int, Field(ge=0, examples=[1])]
    input_formats: Annotated[list[str], Field(examples=[["jpeg"]])]
    output_formats: Annotated[list[str], Field(examples=[["png", "webp"]])]
    options: list[ToolOption]
    files: NotRequired[FileCount]
    plugin: Annotated[str, Field(examples=["jpeg"])]


class Tools(TypedDict):
    """All conversion tools."""

    tools: list[Tool]
    total: Count


class Alive(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Ready(TypedDict):
    """The process can do its work."""

    status: Annotated[Literal["ok", "degraded"], Field(description="`degraded`: without something that helps.")]
    reasons: NotRequired[Annotated[list[str], Field(description="What it does without.")]]


class PlainMeta(TypedDict):
    """What is known about an answer that nobody had to show a key for."""

    request_id: RequestId


class Meta(PlainMeta):
    """What is known about an answer, beside its data."""

    credits_remaining: Annotated[int, Field(ge=0, description="The balance after this request.", examples=[49])]


class Release(TypedDict):
    """What runs here."""

    name: Literal["convertd"]
    version: Annotated[str, Field(examples=["1.0.0"])]
    api: Literal["v1"]
    meta: PlainMeta
