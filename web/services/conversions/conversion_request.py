"""The values that `Conversions.convert` takes and returns: uploads, the request, the result and its charge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.executor import TaskOutput
from engine.executor.detector import Detector
from engine.formats import FileFormat
from engine.options import OptionValues
from engine.outcome import Outcome
from storage.descriptors import run_in_thread
from storage.tables.files import File
from web.metrics.conversions import RequestContext
from web.services.accounts.accounts import Account
from web.services.conversions.idempotency import IdempotentRequest, ResponseData
from web.services.files.work_files import WorkFile

LARGE_RESULT = 32 << 20
"""Bytes of a result in a work file; a larger one is sent from where results are stored."""

MAX_TOTAL = 512 << 20
"""Bytes of all files of a request together, unless its account may send a larger file."""


@dataclass(frozen=True)
class Upload:
    """An uploaded file. `filename` is the client's and untrusted.

    `identified` is the format of the content, or the error of its identification. `fetched`: it is a remote file.
    """

    file: WorkFile
    filename: str
    size: int
    identified: FileFormat | Exception
    fetched: bool = False

    @property
    def format(self) -> FileFormat:
        """The format of the content. Raises UnknownFormat."""
        if isinstance(self.identified, Exception):
            raise self.identified
        return self.identified


async def identified(detector: Detector, file: WorkFile, filename: str, *, fetched: bool = False) -> Upload:
    """Returns a complete file with its format. `filename` is untrusted. Raises RateLimited and NoSpace."""
    found: FileFormat | Exception | None
    if not file.in_memory:
        await file.flush()
    try:
        if file.in_memory:
            found = detector.compare(file.descriptor, filename)
        else:
            found = await run_in_thread(file.descriptor, detector.compare, filename)
        found = found or await detector.read(file.descriptor, filename)
    except Exception as error:
        found = error
    return Upload(file, filename, file.size, found, fetched)


@dataclass(frozen=True)
class RemoteFile:
    """A file on another server. The `headers` are for the host of the URL. `param` is the field that names the URL."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    param: str = "url"


@dataclass(frozen=True)
class OutputRequest:
    """One of several results of a conversion: its output format, its options, and its name, which can be empty."""

    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    name: str = ""


def price_of(outputs: Sequence[OutputRequest]) -> int:
    """The price in credits of a conversion with these outputs, or with one result."""
    return CREDITS_PER_CONVERSION * max(1, len(outputs))


@dataclass(frozen=True)
class ConversionRequest:
    """One chargeable conversion of one file, or of several files with a tool.

    `uploads` are the input files, in order; files that are fetched from elsewhere, `remote`, go before them. `target`
    is the output format and `tool` the name of the tool, if any; the last uploads belong to the options `file_names`,
    or to parameters of the tool. `operation` is the name in the usage report. With `store_result` the result is stored
    for a later download. If `file` is set, the first upload is a working copy of this stored file, and the result is
    saved with it. `name` replaces the first upload's file name, from which the result's name is derived. The result is
    sent to `export`, too. `tag` and `webhook_url` are the client's, for a job. With `outputs`, the result is a ZIP of
    several, `target` is not used, and the options are those that all have, and name the ZIP.
    """

    account: Account
    operation: str
    uploads: tuple[Upload, ...]
    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    tool: str | None = None
    file_names: tuple[str, ...] = ()
    name: str = ""
    store_result: bool = False
    file: File | None = None
    idempotency: IdempotentRequest | None = None
    context: RequestContext = field(default_factory=RequestContext)
    remote: tuple[RemoteFile, ...] = ()
    export: RemoteFile | None = None
    tag: str | None = None
    webhook_url: str | None = None
    outputs: tuple[OutputRequest, ...] = ()

    @property
    def credits(self) -> int:
        """The price."""
        return price_of(self.outputs)

    @property
    def original_name(self) -> str:
        return self.name or self.uploads[0].filename

    def parameters(self, target: str) -> dict[str, Any]:
        """The parameters that a repeated request must have, too, with its output format, besides its uploads."""
        given: dict[str, Any] = {"files": self.file_names, "tag": self.tag, "webhook_url": self.webhook_url}
        given["outputs"] = [(one.target, dict(one.options), one.name) for one in self.outputs]
        given["urls"] = [file.url for file in self.remote]
        given["export_url"] = None if self.export is None else self.export.url
        if self.file is not None:
            given["file"] = self.file.file_id
        always = {"target": target, "tool": self.tool, "options": dict(self.options)}
        return always | {name: value for name, value in given.items() if value}

    @property
    def contents(self) -> list[WorkFile]:
        """The uploads, without the working copy of a stored file and without files that were fetched."""
        return [] if self.file is not None else [upload.file for upload in self.uploads if not upload.fetched]

    def with_additional(self, uploads: Mapping[str, Upload]) -> "ConversionRequest":
        """The request with additional files by the names of the options that they belong to."""
        if not uploads:
            return self
        names = (*self.file_names, *uploads)
        return replace(self, uploads=(*self.uploads, *uploads.values()), file_names=names)

    def for_output(self, output: TaskOutput) -> "ConversionRequest":
        """The request with the files that one of its outputs needs."""
        uploads = tuple(self.uploads[index] for index in output.inputs)
        return replace(self, uploads=uploads, file_names=output.file_names)

    @property
    def is_stored(self) -> bool:
        """Whether the result is stored: for the client, or because the request may be repeated."""
        return self.store_result or self.idempotency is not None

    def stores(self, size: int) -> bool:
        """Whether a result of `size` bytes is stored: a large one, too, for as long as it is sent.

        A client that reads it slowly then uses the storage of its account, if that has any, not the work space of all.
        """
        return self.is_stored or (size > LARGE_RESULT and self.account.tier.max_stored > 0)

    @property
    def size(self) -> int:
        """Size of all uploads in bytes, without the files of options."""
        inputs = len(self.uploads) - (0 if self.tool else len(self.file_names))
        return sum(upload.size for upload in self.uploads[:inputs])


@dataclass(frozen=True)
class ChargedConversion:
    """A successful, charged conversion and its result. `balance` is the account's balance in credits after the charge.

    `response` is set if the result is stored.
    """

    file: WorkFile
    outcome: Outcome
    response: ResponseData | None
    balance: int
