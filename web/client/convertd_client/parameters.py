"""The parameters of requests: form fields, files and parts of paths."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias, cast
from urllib.parse import quote

from convertd_client.transfers import Source

ToolOption: TypeAlias = "str | float | Sequence[str] | os.PathLike[str] | BinaryIO | None"
"""The value of a tool's option, None if it is not given. Path objects, bytes and open files are sent as files."""


def as_form(**fields: object) -> dict[str, str]:
    """The fields as text: strings as they are, other values as in JSON. Omits None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def split_tool_arguments(
    files: Source | Sequence[Source], options: Mapping[str, ToolOption]
) -> tuple[list[tuple[str, Any]], dict[str, ToolOption]]:
    """Returns the files of a tool with their fields, and its options that are no files."""
    is_single = isinstance(files, str) or is_file(files)
    sent: list[tuple[str, Any]] = [("file", files)] if is_single else [("files[]", one) for one in cast(Any, files)]
    sent += [(option, value) for option, value in options.items() if is_file(value)]
    return sent, {option: value for option, value in options.items() if not is_file(value)}


def is_file(value: object) -> bool:
    """Whether the value of an option is sent as a file."""
    return isinstance(value, bytes | os.PathLike) or hasattr(value, "read")


def quoted(name: str) -> str:
    """The name as a part of a path."""
    return quote(name, safe="")
