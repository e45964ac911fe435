"""A conversion request and its outcome, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.formats import FileFormat
from engine.options import Options
from engine.pipeline import WarningRecord
from storage.files import File
from storage.usage import Operation
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.idempotency import Answer, IdempotentRequest
from web.services.work_files import WorkFile


@dataclass(frozen=True)
class Upload:
    """An uploaded file. `filename` is the client's and untrusted.

    `identified` is the format of the content, or the error of its identification.
    """

    file: WorkFile
    filename: str
    size: int
    identified: FileFormat | Exception

    @property
    def format(self) -> FileFormat:
        """The format of the content. Raises UnknownFormat."""
        if isinstance(self.identified, Exception):
            raise self.identified
        return self.identified


@dataclass(frozen=True)
class ConversionRequest:
    """One chargeable conversion of one file, or of several files with a tool.

    With `keep` the result is stored for a later download. `file` is the stored file that the one upload is a copy of;
    the result is recorded with it. `name` is the file name that the result's name derives from, by default that of the
    first upload.
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
    def files(self) -> tuple[WorkFile, ...]:
        return tuple(upload.file for upload in self.uploads)

    @property
    def size(self) -> int:
        """Size of all uploads in bytes."""
        return sum(upload.size for upload in self.uploads)


@dataclass(frozen=True)
class ConversionOutcome:
    """The resulting file. `counts` are the numbers of a tool."""

    file: WorkFile
    filename: str
    media_type: str
    size: int
    seconds: float
    warnings: tuple[WarningRecord, ...]
    counts: Mapping[str, Any]


@dataclass(frozen=True)
class Charged:
    """A successful, charged conversion. `balance` is the account's balance in credits after the charge.

    `answer` is set if the result is stored.
    """

    result: ConversionOutcome
    answer: Answer | None
    balance: int
