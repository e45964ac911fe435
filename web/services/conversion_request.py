"""Orders: what clients want done, and what they are answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.formats import FileFormat
from engine.options import Options
from engine.pipeline import WarningRecord
from storage.files import File
from storage.usage import Operation
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.idempotency import Answer, IdempotentRequest


@dataclass(frozen=True)
class Upload:
    """A file that a client sent, lying in the folder of its request. Its name is the client's: not to be trusted.

    `identified` is the format of its content, or why there is none: whoever wants to work with it is to know.
    """

    path: Path
    filename: str
    size: int
    identified: FileFormat | Exception

    @property
    def format(self) -> FileFormat:
        """The format of its content. Raises UnknownFormat."""
        if isinstance(self.identified, Exception):
            raise self.identified
        return self.identified


@dataclass(frozen=True)
class ConversionRequest:
    """Files to convert, or to put through a tool: what is charged as one.

    `keep`: the result is to be fetched later. `file` is the stored file of which the one upload is a copy; it becomes
    processed. `name` is what the result is named after, the first upload by default. `trail` is that of the request.
    """

    account: Account
    operation: Operation
    uploads: tuple[Upload, ...]
    target: str
    options: Options = Options()
    tool: str | None = None
    name: str = ""
    keep: bool = False
    file: File | None = None
    idempotency: IdempotentRequest | None = None
    context: RequestContext = field(default_factory=RequestContext)

    @property
    def original_name(self) -> str:
        return self.name or self.uploads[0].filename

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(upload.path for upload in self.uploads)

    @property
    def size(self) -> int:
        """Bytes of all uploads."""
        return sum(upload.size for upload in self.uploads)

    @property
    def folder(self) -> Path:
        """The folder of the request."""
        return self.paths[0].parent


@dataclass(frozen=True)
class ConversionOutcome:
    """A file that was made, at `path` in the folder of its request. `counts` is what a tool counted."""

    path: Path
    filename: str
    media_type: str
    size: int
    seconds: float
    warnings: tuple[WarningRecord, ...]
    counts: Mapping[str, Any]


@dataclass(frozen=True)
class Charged:
    """An order that was carried out and charged. `balance` is what the account has left.

    There is an `answer` where the result is kept, else only the result.
    """

    result: ConversionOutcome
    answer: Answer | None
    balance: int
