"""Fields that determine what a conversion results in: one format, several outputs, or what a preset keeps."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from web.api.field_types import RequestModel, field_type, is_text, matching

MAX_OUTPUTS = 20
PRESET_NAME = "[A-Za-z0-9][A-Za-z0-9_-]{0,49}"

_OUTPUT = {
    "type": "object",
    "properties": {"output_format": {"type": "string"}, "name": {"type": "string"}},
    "required": ["output_format"],
    "additionalProperties": True,
}


def _outputs(value: object, info: ValidationInfo) -> tuple[Mapping[str, Any], ...]:
    """The outputs, as a JSON list or its text in a form. What is in them is checked later."""
    if is_text(info) and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise PydanticCustomError("malformed", "must be a JSON list of objects.")
    if not 1 <= len(value) <= MAX_OUTPUTS:
        limits = {"min": 1, "max": MAX_OUTPUTS}
        raise PydanticCustomError("out_of_range", "must have {min} to {max} objects.", limits)
    return tuple(value)


FormatName = Annotated[
    str,
    matching("[A-Za-z0-9]{1,20}", 'a format name, for example "jpeg"'),
    Field(
        description="The target format. Case-insensitive; the aliases `jpg`, `tif` and `heif` are accepted, and "
        "`auto`, the smallest of several `formats`. `GET /formats` lists the formats.",
        examples=["webp"],
    ),
]


class ConversionFields(RequestModel):
    """POST /batch."""

    output_format: FormatName


class OutputFields(ConversionFields):
    """An entry of `outputs`, which has options, too."""

    name: Annotated[
        str,
        matching(r"[^\x00-\x1f\x7f/\\]{0,100}", "the name of a file without its extension"),
        Field(description="The name of the result, without its extension.", examples=["small"]),
    ] = ""


class KeptFields(RequestModel):
    """PUT /presets/{name}: the target of conversions, besides options."""

    output_format: FormatName | None = None
    outputs: (
        Annotated[
            tuple[Mapping[str, Any], ...],
            field_type(
                _outputs,
                Annotated[
                    list[dict[str, Any]],
                    Field(min_length=1, max_length=MAX_OUTPUTS, json_schema_extra={"items": _OUTPUT}),
                ],
            ),
            Field(
                description="Multiple outputs instead of one: a list of objects, each with `output_format`, options "
                "and a `name`. Options beside it apply to all results. The response is a ZIP, or JSON that lists "
                "the results in their order. Each costs one credit; if one fails, all do.",
                examples=[[{"output_format": "webp", "width": 400, "name": "small"}, {"output_format": "avif"}]],
            ),
        ]
        | None
    ) = None


class TargetFields(KeptFields):
    """The target of a request. One of the fields is needed."""

    preset: (
        Annotated[
            str,
            matching(PRESET_NAME, "the name of a preset"),
            Field(
                description="The preset of the account whose fields the request uses, unless it has its own.",
                examples=["thumbnails"],
            ),
        ]
        | None
    ) = None
