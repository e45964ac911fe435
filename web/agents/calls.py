"""Calls of agents: their arguments, the files that they may use, and the errors that they get."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from engine import OptionValues

MAX_DATA = 4 << 20
"""Largest file in bytes that arguments can contain."""

MAX_MESSAGE = 2 * MAX_DATA
"""Largest message in bytes: a file in Base64, and other arguments."""

MAX_RETURNED = 1 << 20
"""Largest result in bytes that a response contains; it does so if the input was among the arguments."""


class AgentError(Exception):
    """A refusal, with a code of the API or `forbidden_path`, `file_error`. `str(error)` is a sentence for the agent."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details = {name: value for name, value in details.items() if value is not None}

    def as_json(self) -> dict[str, Any]:
        """The error as JSON values."""
        return {"error": {"code": self.code, "message": str(self), **self.details}}


@dataclass(frozen=True)
class Source:
    """A file to convert: at a path, or its content, or at a URL. `name` is its file name, if known."""

    name: str = ""
    path: Path | None = None
    data: bytes | None = None
    url: str | None = None


@dataclass(frozen=True)
class Call:
    """A conversion, or a tool on files, `additional` ones with the names of their parameters.

    The result is written to `output`, or stored by the server. A `dry_run` only inspects the file.
    """

    sources: tuple[Source, ...]
    target: str
    options: OptionValues
    tool: str | None = None
    additional: Sequence[tuple[str, Source]] = ()
    output: Path | None = None
    overwrite: bool = False
    background: bool = False
    dry_run: bool = False


class Backend(Protocol):
    """Where conversions run. The methods return JSON values and raise AgentError."""

    async def run(self, call: Call) -> dict[str, Any]:
        """Runs a conversion or a tool, or inspects a file."""
        ...

    async def formats(self, source: str | None, target: str | None) -> dict[str, Any]:
        """Returns the output formats of all input formats or of one, or the options of a pair."""
        ...

    async def job(self, job_id: str, wait: int) -> dict[str, Any]:
        """Returns a job, after at most `wait` seconds."""
        ...

    async def account(self) -> dict[str, Any]:
        """Returns the account that pays."""
        ...


@dataclass(frozen=True)
class Files:
    """The files that an agent may read and write: those below the folder `root`. Without one, there are none."""

    root: Path | None = None

    def find(self, path: str) -> Path:
        """Returns the absolute path, relative paths being below the root. Raises AgentError."""
        if self.root is None:
            raise AgentError("forbidden_path", "This server has no access to your files; use data or url.")
        root = self.root.resolve()
        found = (root / Path(path).expanduser()).resolve()  # follows symbolic links, which can lead out
        if not found.is_relative_to(root):
            raise AgentError("forbidden_path", f"{path} is outside of {root}, the folder of this server.")
        return found


def by_name(files: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """The files of each name, in their order."""
    found: dict[str, list[Any]] = {}
    for name, file in files:
        found.setdefault(name, []).append(file)
    return found


def load(module: str) -> Any:
    """Returns a module that imports the package `mcp`, which takes a second and 40 MB. Raises AgentError."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types", "convertd_client"):
            raise
        message = "agents need mcp and convertd-client; run: sh config/setup.sh mcp, or pip install mcp ./web/client"
        raise AgentError("not_found", message) from None


def decode(data: str, field_name: str = "data") -> bytes:
    """Returns the bytes of Base64. Raises AgentError."""
    if len(data) > MAX_DATA * 4 // 3 + 4:
        raise AgentError("file_too_large", f"{field_name} has more than {MAX_DATA} bytes; use path or url.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise AgentError("invalid_parameter", f"{field_name} must be Base64.", param=field_name) from None
