"""The values that `Conversions.convert` takes and returns: uploads, the request, the result file and its charge."""

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
from web.services.idempotency import IdempotentRequest, ResponseData


@dataclass(frozen=True)
class Upload:
    """An uploaded file in the working folder of its request. `filename` is the client's and untrusted.

    `identified` is the format of the content, or the error of its identification.
    """

    path: Path
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
    options: Options = Options()
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
    def paths(self) -> tuple[Path, ...]:
        return tuple(upload.path for upload in self.uploads)

    @property
    def size(self) -> int:
        """Size of all uploads in bytes."""
        return sum(upload.size for upload in self.uploads)

    @property
    def folder(self) -> Path:
        """The working folder of the request."""
        return self.paths[0].parent


@dataclass(frozen=True)
class ResultFile:
    """The result of a conversion: a file at `path` in the working folder of its request.

    `size` is in bytes, `seconds` is the duration of the job. `counts` are the numbers of files and pages of a tool.
    """

    path: Path
    filename: str
    media_type: str
    size: int
    seconds: float
    warnings: tuple[WarningRecord, ...]
    counts: Mapping[str, Any]


@dataclass(frozen=True)
class ChargedConversion:
    """A successful, charged conversion. `balance` is the account's balance in credits after the charge.

    `response` is set if the result is stored.
    """

    result: ResultFile
    response: ResponseData | None
    balance: int
