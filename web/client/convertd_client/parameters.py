"""The parameters of requests: form fields, files and parts of paths."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias, cast
from urllib.parse import quote

from convertd_client.transfers import Source

ToolOption: TypeAlias = "str | float | Sequence[Any] | Mapping[str, Any] | os.PathLike[str] | BinaryIO | None"
"""The value of a tool's option, None if it is not given. Path objects, bytes and open files are sent as files, also
those in a list; other lists and mappings as JSON."""


def as_form(**fields: object) -> dict[str, str]:
    """The fields as text: strings as they are, other values as in JSON. Omits None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def files_of_tool(files: Source | Sequence[Source]) -> list[tuple[str, Any]]:
    """The files of a tool with their fields."""
    is_single = isinstance(files, str) or is_file(files)
    return [("file", files)] if is_single else [("files[]", one) for one in cast(Any, files)]


def split_fields(fields: Mapping[str, object]) -> tuple[dict[str, str], list[tuple[str, Any]]]:
    """The fields as text, and those that are files, or lists of files."""
    listed = {name: value if isinstance(value, list | tuple) else [value] for name, value in fields.items()}
    files = [(name, value) for name, values in listed.items() for value in values if is_file(value)]
    sent = {name for name, _ in files}
    return as_form(**{name: value for name, value in fields.items() if name not in sent}), files


def is_file(value: object) -> bool:
    """Whether the value of an option is sent as a file."""
    return isinstance(value, bytes | os.PathLike) or hasattr(value, "read")


def quoted(name: str) -> str:
    """The name as a part of a path."""
    return quote(name, safe="")
