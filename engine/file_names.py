"""Names of results: the option `filename`, a template such as `{name}-{width}.{ext}`."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from engine.decode_limits import Size
from engine.formats import FileFormat
from engine.options import Option

_FIELDS = ("name", "ext", "format", "width", "height")
_FIELD = re.compile(r"\{([^{}]*)\}")
_MAX_LENGTH = 200  # characters


def _check_template(text: str) -> str:
    unknown = [name for name in _FIELD.findall(text) if name not in _FIELDS]
    if unknown or set("{}") & set(_FIELD.sub("", text)):
        raise ValueError(f"must have no other fields than {', '.join(f'{{{name}}}' for name in _FIELDS)}.")
    if set("/\\") & set(text) or any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError("must be the name of a file, without folders and control characters.")
    return text


FileName: TypeAlias = Annotated[
    str,
    AfterValidator(_check_template),
    Field(
        min_length=1,
        max_length=_MAX_LENGTH,
        examples=["{name}-{width}.{ext}"],
        description="The name of the result: text with the fields {name}, of the upload without its extension, {ext}, "
        "{format}, {width} and {height}, which are empty where the result has no size. An extension is added if it "
        "has none of its format.",
    ),
]

FILENAME: Final = Option("filename", FileName)
"""The option of all conversions and tools that names the result. No step has it."""


def file_name(template: str, name: str, target: FileFormat, size: Size | None, *, container: str | None = None) -> str:
    """Returns the name that a template gives a result, which a container makes an archive. `name` is the upload's.

    The name is untrusted: the caller removes what file systems forbid.
    """
    width, height = size or ("", "")
    extensions = (container,) if container else target.extensions
    values = {"name": name, "ext": extensions[0], "format": target.name, "width": width, "height": height}
    text = _FIELD.sub(lambda field: str(values[field[1]]), template)
    return text if text.lower().endswith(tuple(f".{one}" for one in extensions)) else f"{text}.{extensions[0]}"
