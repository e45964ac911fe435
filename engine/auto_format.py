"""The output format `auto`: of several formats, the smallest file that keeps what an image has."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from engine.options import Option, OptionValues, split_list

AUTO: Final = "auto"
"""The name that requests have in place of an output format."""

DEFAULT_FORMATS: Final = ("avif", "webp", "jpeg", "png")

_MAX_LENGTH = 200  # characters


def _check_formats(text: str) -> str:
    if not all(name.strip() for name in split_list(text)):
        raise ValueError("must be names of formats, separated by commas.")
    return text


Formats: TypeAlias = Annotated[
    str,
    AfterValidator(_check_formats),
    Field(
        max_length=_MAX_LENGTH,
        examples=["avif,webp,jpeg"],
        description="With the output format `auto`: the formats of which the smallest file is the result, among those "
        "that keep transparency, animation and bit depth.",
    ),
]

FORMATS: Final = Option("formats", Formats)
"""The option of requests whose output format is AUTO. No step has it."""


def formats_of(options: OptionValues) -> tuple[str, ...]:
    """Returns the names of the formats that the options list, or DEFAULT_FORMATS."""
    given = options.get(FORMATS.name)
    return DEFAULT_FORMATS if given is None else tuple(name.strip() for name in split_list(str(given)))


def without_formats(options: OptionValues) -> OptionValues:
    """Returns the options of the conversions to these formats."""
    return {name: value for name, value in options.items() if name != FORMATS.name}
