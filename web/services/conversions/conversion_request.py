"""What a conversion is asked to do, from the handler to the task: one value, with its uploads; and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.executor import TaskOutput
from engine.executor.detector import Detector
from engine.formats import FileFormat
from engine.network import FetchedPage
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
    """An input file. `filename` is the client's and untrusted.

    `identified` is the format of the content, or the error of its identification. `fetched`: the request names the
    file, and does not have it. `page` is how the server of a URL has responded with it.
    """

    file: WorkFile
    filename: str
    size: int
    identified: FileFormat | Exception
    fetched: bool = False
    page: FetchedPage | None = field(default=None, repr=False)

    @property
    def format(self) -> FileFormat:
        """The format of the content. Raises UnknownFormat."""
        if isinstance(self.identified, Exception):
            raise self.identified
        return self.identified


async def identify(detector: Detector, file: WorkFile, filename: str, *, fetched: bool = False) -> Upload:
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
    """A file on another server. The `headers` are for the host of the URL. `param` is the field that names the URL.

    With `any_status`, it is fetched also if the server responds with an error. The `browser_headers` are those of a
    page in a browser, which has more requests of its own.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    param: str = "url"
    any_status: bool = False
    browser_headers: dict[str, str] = field(default_factory=dict, repr=False)

    def for_page(self, options: OptionValues) -> "RemoteFile":
        """The file as the options for pages want it to be requested."""
        cookies: Any = options.get("cookies", ())
        values = {
            "Cookie": "; ".join(f"{one['name']}={one['value']}" for one in cookies),
            "User-Agent": str(options.get("user_agent", "")),
        }
        headers = {name: value for name, value in values.items() if value}
        return replace(self, browser_headers=headers, any_status=options.get("fail_on_status") is False)


@dataclass(frozen=True)
class OutputRequest:
    """One of several results of a conversion: its output format, its options, and its name, which can be empty."""

    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ConversionSpec:
    """What a client asks for, as plain values that the row of a job keeps as JSON.

    `operation` is the name in the usage report, `target` the output format and `tool` the name of the tool, if any.
    With `outputs`, the result is a ZIP of several, `target` is not used, and the options are those that all have, and
    name the ZIP. `name` replaces the first file's name, from which the result's name is derived. `file_names` are the
    options, or parameters of the tool, to which the last files of the request belong.

    The files are sent with the request, or they are the stored file `file_id`, the files `file_ids` of a batch, each
    of which is converted by itself, or `remote`. The result is sent to `export`, too. `tag` and `webhook_url` are the
    client's, for a job. Each result costs `price` credits, by the plan of the account.
    """

    operation: str = "convert"
    target: str = ""
    options: OptionValues = field(default_factory=dict, repr=False)
    outputs: tuple[OutputRequest, ...] = ()
    tool: str | None = None
    name: str = ""
    file_names: tuple[str, ...] = ()
    file_id: str | None = None
    batch_id: str = ""
    file_ids: tuple[str, ...] = ()
    remote: tuple[RemoteFile, ...] = field(default=(), repr=False)
    export: RemoteFile | None = field(default=None, repr=False)
    tag: str | None = None
    webhook_url: str | None = None
    price: int = CREDITS_PER_CONVERSION

    @property
    def credits(self) -> int:
        """The price of the conversion, or of each file of a batch."""
        return self.price * max(1, len(self.outputs))

    def spec(self) -> dict[str, Any]:
        """The plain values by name, for another value of the same."""
        return {one.name: getattr(self, one.name) for one in fields(ConversionSpec)}


@dataclass(frozen=True, kw_only=True)
class ConversionRequest(ConversionSpec):
    """What an account asks for, with the uploads.

    Those that are `remote` go before the others once they are fetched. If `file` is set, the first upload is a working
    copy of this stored file, and the result is saved with it. With `store_result`, the result is stored for a later
    download. In the `background`, it is processed as a job.
    """

    account: Account
    context: RequestContext = field(default_factory=RequestContext)
    uploads: tuple[Upload, ...] = ()
    file: File | None = None
    store_result: bool = False
    background: bool = False
    idempotency: IdempotentRequest | None = None

    @property
    def original_name(self) -> str:
        return self.name or self.uploads[0].filename

    def parameters(self, target: str) -> dict[str, Any]:
        """The parameters that a repeated request must have, too, with its output format, besides its uploads."""
        sent = self.uploads[len(self.uploads) - len(self.file_names) :]
        names = [name for name, upload in zip(self.file_names, sent, strict=True) if not upload.fetched]
        given: dict[str, Any] = {"files": names, "tag": self.tag, "webhook_url": self.webhook_url}
        given["outputs"] = [(one.target, one.options, one.name) for one in self.outputs]
        given["urls"] = [file.url for file in self.remote]
        given["export_url"] = None if self.export is None else self.export.url
        given["file"] = self.file_id
        always: dict[str, Any] = {"target": target, "options": self.options}
        if self.batch_id:
            always["files"] = self.file_ids
        else:
            always["tool"] = self.tool
        return always | {name: value for name, value in given.items() if value}

    @property
    def contents(self) -> list[WorkFile]:
        """The uploads, without copies of stored files and without files that were fetched."""
        return [] if self.file is not None else [upload.file for upload in self.uploads if not upload.fetched]

    def with_additional(self, uploads: Mapping[str, Upload]) -> "ConversionRequest":
        """The request with additional files by the names of the options that they belong to."""
        return replace(self, uploads=(*self.uploads, *uploads.values()), file_names=(*self.file_names, *uploads))

    def for_output(self, output: TaskOutput) -> "ConversionRequest":
        """The request with the files that one of its outputs needs."""
        uploads = tuple(self.uploads[index] for index in output.inputs)
        return replace(self, uploads=uploads, file_names=output.file_names)

    def stores(self, size: int) -> bool:
        """Whether a result of `size` bytes is stored: for the client, because the request may be repeated, or if large.

        A client that reads a large one slowly uses the storage of its account, if that has any, for as long as it is
        sent, not the work space of all.
        """
        is_large = size > LARGE_RESULT and self.account.tier.max_stored_bytes > 0
        return self.store_result or self.idempotency is not None or is_large

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
