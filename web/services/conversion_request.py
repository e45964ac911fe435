"""The values that `Conversions.convert` takes and returns: uploads, the request, the result file and its charge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.formats import FileFormat
from engine.options import OptionValues
from engine.pipeline import WarningRecord
from storage.tables.files import File
from storage.tables.usage import Operation
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.idempotency import IdempotentRequest, ResponseData
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

    `uploads` are the input files, in order. `target` is the output format and `tool` the name of the tool, if any. With
    `store_result` the result is stored for a later download. If `file` is set, the only upload is a working copy of
    this stored file, and the result is saved with it. `name` replaces the first upload's file name, from which the
    result's name is derived.
    """

    account: Account
    operation: Operation
    uploads: tuple[Upload, ...]
    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    tool: str | None = None
    name: str = ""
    store_result: bool = False
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
class ResultFile:
    """The result of a conversion.

    `size` is in bytes, `seconds` is the duration of the job. Several files are the entries of a `container`.
    `quality_used` is the quality that a size limit led to. `counts` are the numbers of files and pages of a tool.
    """

    file: WorkFile
    filename: str
    media_type: str
    size: int
    seconds: float
    warnings: tuple[WarningRecord, ...]
    counts: Mapping[str, Any] = field(default_factory=dict)
    container: Literal["zip"] | None = None
    file_count: int = 1
    quality_used: int | None = None


@dataclass(frozen=True)
class ChargedConversion:
    """A successful, charged conversion. `balance` is the account's balance in credits after the charge.

    `response` is set if the result is stored.
    """

    result: ResultFile
    response: ResponseData | None
    balance: int
