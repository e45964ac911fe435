"""Python client for the convertd API, synchronous and asynchronous.

This file needs only httpx: import it where convertd is installed, or copy it into another project. `Client` and
`AsyncClient` have the same methods. URL and API key are arguments or come from `CONVERTD_URL` and `CONVERTD_API_KEY`.

>>> from web.client import AsyncClient, Client, UnsupportedConversion
>>> with Client() as client:
...     result = client.convert("photo.heic", "webp", to="photo.webp", quality=80, width=100)
...     content = client.convert("photo.heic", "bmp").content  # without `to`, the result is in memory
...     for entry in client.convert_many(["photo.heic", "page.pdf"], "png", folder="."):
...         print(entry.path, entry.error)
photo.png None
page.png None
>>> result.path.name, result.output_format, result.warnings
('photo.webp', 'webp', ())

The options of a conversion are keyword arguments. Each pair of formats has its own:

>>> with Client() as client:
...     print(client.conversion("heic", "webp").options["properties"]["quality"]["maximum"])
100

Every error is a ConvertdError. Each error code of the API has a subclass:

>>> with Client() as client:
...     try:
...         client.convert("photo.heic", "nef")
...     except UnsupportedConversion as error:
...         print(error.code, "png" in error.details["available"])
unsupported_conversion True

>>> import asyncio
>>> async def balance() -> int:
...     async with AsyncClient() as client:
...         return (await client.account()).credits_remaining
>>> asyncio.run(balance()) > 0
True

Requests that may succeed later are retried with exponential backoff: after a lost connection, a full queue or a crash.
All attempts share one idempotency key, so a call is charged once. Files are streamed from and to disk.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import secrets
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from itertools import count, islice
from pathlib import Path
from types import MappingProxyType, NoneType, TracebackType
from typing import Any, BinaryIO, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, cast, get_args, get_type_hints
from urllib.parse import quote

import httpx

P = ParamSpec("P")
T = TypeVar("T")

FilePath: TypeAlias = "str | os.PathLike[str]"

Source: TypeAlias = "FilePath | bytes | BinaryIO"
"""A file to send: a path, the content, or an open binary file, which is read from its start."""

Progress: TypeAlias = "Callable[[str, int, int | None], object]"
"""Callback with "upload" or "download", the bytes transferred so far, and the total in bytes, None if unknown."""

OptionValue: TypeAlias = "str | int | float | bool | None"
"""The value of an option; None if it is not given."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_MAX_DELAY = 8.0  # seconds; a longer Retry-After of the server takes precedence


class ConvertdError(Exception):
    """Base class of all errors; `str(error)` is a readable message.

    `status` is the HTTP status, 0 without a response. `reason` refines the code, `param` is the name of the invalid
    parameter, `retry_after` is in seconds. If the conversion succeeded but its download failed, `details["file_id"]`
    is the id of the result.
    """

    code = "unknown"

    def __init__(
        self, message: str, body: Mapping[str, Any] = _EMPTY, *, status: int = 0, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = str(body.get("code", self.code))
        self.reason: str | None = body.get("reason")
        self.param: str | None = body.get("param")
        self.details: dict[str, Any] = dict(body.get("details") or {})
        self.request_id: str | None = body.get("request_id")
        self.retryable = bool(body.get("retryable"))
        self.status = status
        self.retry_after = retry_after


class InvalidApiKey(ConvertdError):
    """The key is missing or invalid."""

    code = "invalid_api_key"


class KeyNotVerified(ConvertdError):
    """The account's email address is not verified."""

    code = "key_not_verified"


class RateLimited(ConvertdError):
    """Too many requests or a full queue, for longer than the client retries."""

    code = "rate_limit_exceeded"


class NoCredits(ConvertdError):
    """The account has no credits left; `purchase` buys more."""

    code = "no_credits"


class InvalidFileType(ConvertdError):
    """The file type is unknown or not accepted here, or the PDF needs a password."""

    code = "invalid_file_type"


class FileTooLarge(ConvertdError):
    """The file has too many bytes, pixels, frames or pages; `details` has the limit."""

    code = "file_too_large"


class UnsupportedConversion(ConvertdError):
    """The pair of formats is not supported; `details["available"]` lists the supported output formats."""

    code = "unsupported_conversion"


class ProcessingFailed(ConvertdError):
    """The conversion failed. It is not charged."""

    code = "processing_failed"


class InvalidParameter(ConvertdError):
    """A parameter is missing or invalid; `param` is its name."""

    code = "invalid_parameter"


class NotFound(ConvertdError):
    """The resource does not exist in this account, or has expired."""

    code = "not_found"


class ServerError(ConvertdError):
    """Unexpected error of the server."""

    code = "server_error"


class MethodNotAllowed(ConvertdError):
    """The path does not support the method: server and client versions do not match."""

    code = "method_not_allowed"


class IdempotencyConflict(ConvertdError):
    """The same request is still running, for longer than the client retries."""

    code = "idempotency_conflict"


class IdempotencyKeyReused(ConvertdError):
    """The idempotency key was used for a different request: the file changed between attempts."""

    code = "idempotency_key_reused"


class RangeNotSatisfiable(ConvertdError):
    """The requested byte range is beyond the end of the file."""

    code = "range_not_satisfiable"


class RequestTimeout(ConvertdError):
    """The upload was too slow."""

    code = "request_timeout"


class NotReady(ConvertdError):
    """The service is temporarily unavailable."""

    code = "not_ready"


class ConnectionFailed(ConvertdError):
    """The server cannot be reached, or the connection was lost."""

    code = "connection_failed"


class UnexpectedAnswer(ConvertdError):
    """The response is not from convertd, but for example from a proxy."""

    code = "unexpected_answer"


@dataclass(frozen=True)
class Warned:
    """A property of the input that the result does not keep."""

    code: str
    message: str


@dataclass(frozen=True)
class Fault:
    """The error of one file in a batch."""

    code: str
    message: str
    reason: str | None = None
    retryable: bool = False


@dataclass(frozen=True)
class StoredFile:
    """A stored file. `status` is pending, or processed after a conversion. Times are in UTC."""

    file_id: str
    original_name: str
    extension: str
    size: int
    status: str
    input_format: str
    expires_at: str
    output_format: str | None = None
    processed_size: int | None = None
    reduction_percent: float | None = None
    download_url: str | None = None
    batch_id: str | None = None
    source_file_id: str | None = None
    error: Fault | None = None
    warnings: tuple[Warned, ...] = ()


@dataclass(frozen=True)
class Download:
    """A downloaded file, in `content` or in the file at `path`. `size` is in bytes."""

    size: int
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True)
class Converted:
    """The result of a conversion, downloaded to `content` or `path` unless the source is a stored file.

    Sizes are in bytes. `container` is "zip" if the result is a ZIP archive with `file_count` files of the output
    format. `quality_used` is the quality that met the size limit `max_bytes`. Only the PDF tools set the page counts.
    """

    file_id: str
    input_format: str
    output_format: str
    original_size: int
    processed_size: int
    reduction_percent: float
    download_url: str
    processing_time_ms: int
    credits_remaining: int
    request_id: str
    warnings: tuple[Warned, ...] = ()
    page_count: int | None = None
    file_count: int | None = None
    original_page_count: int | None = None
    deleted_pages: tuple[int, ...] = ()
    container: str | None = None
    quality_used: int | None = None
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True)
class Batch:
    """A batch and the number of its files in each state."""

    batch_id: str
    output_format: str
    status: str
    created_at: str
    expires_at: str
    max_files: int | None = None
    total: int = 0
    pending: int = 0
    processed: int = 0
    failed: int = 0
    files: tuple[StoredFile, ...] = ()


@dataclass(frozen=True)
class BatchEntry:
    """The result of one file in a batch; `error` is set if it failed.

    Pass `result_file_id` to `download`. `path` is the file that `convert_many` wrote.
    """

    file_id: str
    status: str
    error: Fault | None = None
    result_file_id: str | None = None
    input_format: str | None = None
    output_format: str | None = None
    original_size: int | None = None
    processed_size: int | None = None
    warnings: tuple[Warned, ...] = ()
    container: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class BatchResult:
    """The result of a batch conversion; entries are in the order of the request."""

    results: tuple[BatchEntry, ...]
    total: int
    successful: int
    failed: int
    credits_remaining: int


@dataclass(frozen=True)
class Pair:
    """A pair of input and output format. Usage reports set the number of conversions and the credits charged."""

    input_format: str
    output_format: str
    count: int = 0
    credits: int = 0


@dataclass(frozen=True)
class Formats:
    """All supported conversions."""

    conversions: tuple[Pair, ...]
    by_input_format: Mapping[str, Sequence[str]]
    total: int


@dataclass(frozen=True)
class Conversion:
    """A supported conversion. `options` is the JSON Schema of its options."""

    input_format: str
    output_format: str
    path: tuple[str, ...]
    losses: tuple[str, ...]
    credits: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Inspection:
    """What a conversion of a file would do. `options` holds the effective values; sizes are those of the input."""

    input_format: str
    output_format: str
    path: tuple[str, ...]
    losses: tuple[str, ...]
    credits: int
    options: Mapping[str, Any]
    width: int | None = None
    height: int | None = None
    pages: int | None = None


@dataclass(frozen=True)
class Tool:
    """An operation of the server, such as a conversion or a PDF tool."""

    id: str
    name: str
    category: str
    description: str
    endpoint: str
    credits: int
    input_formats: tuple[str, ...]
    output_formats: tuple[str, ...]
    options: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class RateLimit:
    """The rate limit: requests per window, requests remaining, and the Unix time when the window ends."""

    limit: int
    window_seconds: int
    remaining: int
    reset: int


@dataclass(frozen=True)
class Storage:
    """The size of an account's stored uploads and results, and its storage quota, in bytes."""

    stored_bytes: int
    max_stored_bytes: int


@dataclass(frozen=True)
class Account:
    """An account with its credits, tier and limits. `max_file_size` is in bytes."""

    name: str
    email: str
    tier: str
    credits_remaining: int
    credits_total_purchased: int
    credits_used_total: int
    max_file_size: int
    created_at: str
    last_used_at: str | None
    storage: Storage
    rate_limit: RateLimit
    limits: Mapping[str, int]


@dataclass(frozen=True)
class Day:
    """Usage on one day, YYYY-MM-DD. `conversions` includes `failed`."""

    date: str
    conversions: int
    failed: int
    credits: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Usage:
    """Usage of the account in a period."""

    period: str
    start: str
    end: str
    total_conversions: int
    successful_conversions: int
    failed_conversions: int
    credits_used: int
    bytes_in: int
    bytes_out: int
    bytes_total: int
    by_operation: Mapping[str, int]
    by_conversion: tuple[Pair, ...]
    by_day: tuple[Day, ...]


@dataclass(frozen=True)
class Key:
    """An API key without its secret text."""

    key_id: str
    key_prefix: str
    name: str
    created_at: str | None = None
    last_used_at: str | None = None
    expires_at: str | None = None


@dataclass(frozen=True)
class NewKey(Key):
    """A new API key with its text, which the server does not return again."""

    api_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Purchase:
    """A checkout page to open in a browser; `amount` is in cents."""

    checkout_url: str
    session_id: str
    purchase_id: str
    pack: str
    credits: int
    amount: int
    currency: str
    language: str
    status: str
    expires_at: str


@dataclass(frozen=True)
class Registration:
    """Confirmation that a verification email was sent."""

    email: str
    verification_sent: bool
    message: str


@dataclass(frozen=True)
class _Keys:
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class _Tools:
    tools: tuple[Tool, ...]


class _Upload:
    """A file in a form that httpx can read and rewind for a retry; counts the bytes read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self.name = name
        self.size = file.seek(0, os.SEEK_END)
        self.sent = 0
        self.on_read: Callable[[], object] = int

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self.sent = self._file.tell()
        self.on_read()
        return block

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class _Sink:
    """The destination of a download. A retry requests only the missing bytes."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self._etag = ""
        self._total: int | None = None

    def headers(self) -> dict[str, str]:
        offset = self._file.tell()
        resume = {"Range": f"bytes={offset}-", "If-Range": self._etag} if offset and self._etag else {}
        return {"Accept-Encoding": "identity", **resume}

    def start(self, response: httpx.Response) -> None:
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            self._file.truncate(self._file.seek(0))
        self._etag = response.headers.get("ETag", "")
        length = response.headers.get("Content-Length", "")
        self._total = self._file.tell() + int(length) if length.isdecimal() else None

    def write(self, block: bytes) -> None:
        self._file.write(block)
        if self._progress is not None:
            self._progress("download", self._file.tell(), self._total)


@dataclass(frozen=True)
class _Request:
    """A request. If not `repeatable`, it is retried only if the server has not processed it."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None
    uploads: Sequence[tuple[str, _Upload]] = ()
    key: str | None = None
    sink: _Sink | None = None
    repeatable: bool = True

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments for httpx."""
        headers = {"Accept": "application/json"} if self.sink is None else self.sink.headers()
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        files = [(name, (upload.name, cast(BinaryIO, upload))) for name, upload in self.uploads]
        return {
            "method": self.method,
            "url": self.path,
            "headers": headers,
            "params": self.params,
            "json": self.body,
            "data": self.form,
            "files": files or None,
        }


class _Response:
    """A response while it arrives: downloads are written to the sink, other bodies are collected in memory."""

    def __init__(self, response: httpx.Response, sink: _Sink | None) -> None:
        self.http = response
        self.body = bytearray()
        self._sink = sink if response.is_success else None
        if self._sink is not None:
            self._sink.start(response)

    def feed(self, block: bytes) -> None:
        if self._sink is not None:
            self._sink.write(block)
        else:
            self.body += block

    def json(self) -> Mapping[str, Any]:
        """Returns the body, or an empty mapping if it is not a JSON object."""
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {}


Steps: TypeAlias = "Generator[_Request | float, _Response | httpx.TransportError | None, T]"
"""A call as a generator: yields requests and delays (seconds), receives responses or transport errors."""


class _Calls:
    """All API calls, independent of how requests are sent; shared by both clients."""

    def __init__(self, retries: int, backoff: float, max_retry_wait: float) -> None:
        self._retries = retries
        self._backoff = backoff
        self._max_retry_wait = max_retry_wait

    def convert(
        self,
        /,
        source: Source,
        target: str,
        *,
        to: FilePath | None = None,
        name: str | None = None,
        progress: Progress | None = None,
        **options: OptionValue,
    ) -> Steps[Converted]:
        """Converts a file. Writes the result to the file `to`, or returns it as `content`.

        `name` replaces the filename of the source. `conversion` returns the options of a pair of formats. If the result
        is a ZIP archive, the file has the suffix .zip.
        """
        form = _form(output_format=target, **options)
        return (yield from self._convert_upload("/convert", form, "file", [source], name, to, progress))

    def inspect(
        self,
        /,
        source: Source,
        target: str,
        *,
        name: str | None = None,
        progress: Progress | None = None,
        **options: OptionValue,
    ) -> Steps[Inspection]:
        """Identifies a file and returns what its conversion would do. Converts nothing, and costs nothing."""
        form = _form(output_format=target, dry_run=True, **options)
        with _open_uploads([source], name, progress) as uploads:
            request = _Request("POST", "/convert", form=form, uploads=[("file", upload) for upload in uploads])
            return (yield from self._call(Inspection, request))

    def merge_pdfs(
        self,
        sources: Sequence[Source],
        *,
        to: FilePath | None = None,
        password: str | None = None,
        progress: Progress | None = None,
    ) -> Steps[Converted]:
        """Merges 2 to 20 PDFs into one, in their order."""
        form = _form(password=password)
        return (yield from self._convert_upload("/pdf/merge", form, "files[]", sources, None, to, progress))

    def delete_pages(
        self,
        source: Source,
        pages: str | Sequence[int],
        *,
        to: FilePath | None = None,
        name: str | None = None,
        password: str | None = None,
        progress: Progress | None = None,
    ) -> Steps[Converted]:
        """Removes pages from a PDF. Pages count from 1: [2, 5] or "2,5,8-10"."""
        listed = pages if isinstance(pages, str) else ",".join(map(str, pages))
        form = _form(pages=listed, password=password)
        return (yield from self._convert_upload("/pdf/delete-pages", form, "file", [source], name, to, progress))

    def upload(self, source: Source, *, name: str | None = None, progress: Progress | None = None) -> Steps[StoredFile]:
        """Uploads a file for later conversions."""
        return (yield from self._store("/files/upload", source, name, progress))

    def file(self, file_id: str) -> Steps[StoredFile]:
        """Returns a stored file's properties."""
        return (yield from self._call(StoredFile, _Request("GET", f"/files/{_quoted(file_id)}")))

    def convert_file(self, /, file_id: str, target: str, **options: OptionValue) -> Steps[Converted]:
        """Converts a stored file. `download` fetches the result."""
        body = {**options, "output_format": target}
        request = _Request("POST", f"/files/{_quoted(file_id)}/convert", body=body, key=_new_key())
        return (yield from self._call(Converted, request))

    def download(
        self, file_id: str, *, to: FilePath | None = None, progress: Progress | None = None
    ) -> Steps[Download]:
        """Downloads a result. Resumes after a lost connection. Writes the file at `to` only when it is complete."""
        path = None if to is None else Path(to)
        with _destination(path) as file:
            sink = _Sink(file, progress)
            yield from self._send(_Request("GET", f"/files/{_quoted(file_id)}/download", sink=sink))
            content = file.getvalue() if isinstance(file, io.BytesIO) else b""
            return Download(file.tell(), content, path)

    def delete_file(self, file_id: str) -> Steps[None]:
        """Deletes a stored file and its results."""
        yield from self._send(_Request("DELETE", f"/files/{_quoted(file_id)}"))

    def create_batch(self, target: str) -> Steps[Batch]:
        """Creates an empty batch."""
        return (yield from self._call(Batch, _Request("POST", "/batch", body={"output_format": target})))

    def add_to_batch(
        self, batch_id: str, source: Source, *, name: str | None = None, progress: Progress | None = None
    ) -> Steps[StoredFile]:
        """Uploads a file to a batch."""
        return (yield from self._store(f"/batch/{_quoted(batch_id)}/files", source, name, progress))

    def convert_batch(
        self, /, batch_id: str, file_ids: Sequence[str], target: str, **options: OptionValue
    ) -> Steps[BatchResult]:
        """Converts files of a batch in parallel, with the same options. A failed file does not affect the others."""
        body = {**options, "file_ids": [*file_ids], "output_format": target}
        request = _Request("POST", f"/batch/{_quoted(batch_id)}/convert", body=body, key=_new_key())
        return (yield from self._call(BatchResult, request))

    def batch(self, batch_id: str) -> Steps[Batch]:
        """Returns a batch and its files."""
        return (yield from self._call(Batch, _Request("GET", f"/batch/{_quoted(batch_id)}")))

    def convert_many(
        self,
        /,
        paths: Sequence[FilePath],
        target: str,
        *,
        folder: FilePath | None = None,
        progress: Progress | None = None,
        **options: OptionValue,
    ) -> Steps[tuple[BatchEntry, ...]]:
        """Converts files in one or more batches. Results are written to `folder`, or next to their sources.

        Returns an entry for each path, in the same order. A failed file does not affect the others. Raises ValueError
        if two results would have the same path, or a result would overwrite its source.
        """
        outputs = _outputs([Path(path) for path in paths], target, folder)
        remaining, entries = iter(outputs.items()), list[BatchEntry]()
        while len(entries) < len(outputs):
            batch = yield from self.create_batch(target)
            chunk = dict(islice(remaining, batch.max_files or 1))
            entries += yield from self._convert_chunk(batch, chunk, target, options, progress)
        return tuple(entries)

    def formats(self) -> Steps[Formats]:
        """Returns all supported conversions."""
        return (yield from self._call(Formats, _Request("GET", "/formats")))

    def conversion(self, input_format: str, output_format: str) -> Steps[Conversion]:
        """Returns the steps and the options of a conversion."""
        path = f"/formats/{_quoted(input_format)}/{_quoted(output_format)}"
        return (yield from self._call(Conversion, _Request("GET", path)))

    def tools(self) -> Steps[tuple[Tool, ...]]:
        """Returns the operations of the server."""
        return (yield from self._call(_Tools, _Request("GET", "/tools"))).tools

    def account(self) -> Steps[Account]:
        """Returns the account of the API key."""
        return (yield from self._call(Account, _Request("GET", "/account")))

    def usage(self, period: str | None = None) -> Steps[Usage]:
        """Returns the usage of a month (YYYY-MM) or since a day (YYYY-MM-DD). The default is the current month."""
        return (yield from self._call(Usage, _Request("GET", "/account/usage", params=_form(period=period))))

    def keys(self) -> Steps[tuple[Key, ...]]:
        """Returns the account's active API keys."""
        return (yield from self._call(_Keys, _Request("GET", "/account/keys"))).keys

    def create_key(self, name: str | None = None) -> Steps[NewKey]:
        """Creates an API key."""
        request = _Request("POST", "/account/keys", body=_form(name=name), repeatable=False)
        return (yield from self._call(NewKey, request))

    def rotate_key(self, key_id: str, *, grace_period_seconds: int = 86_400) -> Steps[NewKey]:
        """Replaces an API key. The old key keeps working for the grace period."""
        body = {"grace_period_seconds": grace_period_seconds}
        request = _Request("POST", f"/account/keys/{_quoted(key_id)}/rotate", body=body, repeatable=False)
        return (yield from self._call(NewKey, request))

    def revoke_key(self, key_id: str) -> Steps[None]:
        """Revokes an API key."""
        yield from self._send(_Request("DELETE", f"/account/keys/{_quoted(key_id)}"))

    def purchase(self, pack: str, *, language: str = "en") -> Steps[Purchase]:
        """Opens a checkout for a pack of credits: starter, pro or business."""
        body = {"pack": pack, "language": language}
        return (yield from self._call(Purchase, _Request("POST", "/credits/purchase", body=body, key=_new_key())))

    def register(self, email: str, name: str) -> Steps[Registration]:
        """Registers an account and sends a verification email. Needs no API key."""
        request = _Request("POST", "/register", body={"email": email, "name": name}, repeatable=False)
        return (yield from self._call(Registration, request))

    def verify(self, token: str) -> Steps[NewKey]:
        """Exchanges the token from the email's link for an API key. Needs no API key."""
        request = _Request("GET", "/verify", params={"token": token}, repeatable=False)
        return (yield from self._call(NewKey, request))

    def _convert_upload(
        self,
        path: str,
        form: Mapping[str, str],
        part: str,
        sources: Sequence[Source],
        name: str | None,
        to: FilePath | None,
        progress: Progress | None,
    ) -> Steps[Converted]:
        # Asks for JSON and downloads the result separately: only the download of a stored result can be resumed.
        with _open_uploads(sources, name, progress) as uploads:
            parts = [(part, upload) for upload in uploads]
            result = yield from self._call(Converted, _Request("POST", path, form=form, uploads=parts, key=_new_key()))
        output = None if to is None else _result_path(Path(to), result.container)
        try:
            download = yield from self.download(result.file_id, to=output, progress=progress)
        except ConvertdError as error:
            error.details["file_id"] = result.file_id
            raise
        return replace(result, content=download.content, path=download.path)

    def _store(self, path: str, source: Source, name: str | None, progress: Progress | None) -> Steps[StoredFile]:
        with _open_uploads([source], name, progress) as uploads:
            request = _Request("POST", path, uploads=[("file", upload) for upload in uploads])
            return (yield from self._call(StoredFile, request))

    def _convert_chunk(
        self,
        batch: Batch,
        chunk: Mapping[Path, Path],
        target: str,
        options: Mapping[str, OptionValue],
        progress: Progress | None,
    ) -> Steps[list[BatchEntry]]:
        uploaded: dict[str, Path] = {}
        entries: dict[Path, BatchEntry] = {}
        for path in chunk:
            try:
                uploaded[(yield from self.add_to_batch(batch.batch_id, path, progress=progress)).file_id] = path
            except (InvalidFileType, FileTooLarge) as error:
                entries[path] = BatchEntry("", "failed", _to_fault(error))
        if uploaded:
            result = yield from self.convert_batch(batch.batch_id, [*uploaded], target, **options)
            for entry in result.results:
                path = uploaded[entry.file_id]
                entries[path] = yield from self._download_entry(entry, chunk[path], progress)
        return [entries[path] for path in chunk]

    def _download_entry(self, entry: BatchEntry, to: Path, progress: Progress | None) -> Steps[BatchEntry]:
        if entry.error is not None:
            return entry
        to = _result_path(to, entry.container)
        try:
            yield from self.download(entry.result_file_id or entry.file_id, to=to, progress=progress)
        except ConvertdError as error:
            return replace(entry, error=_to_fault(error))
        return replace(entry, path=to)

    def _call(self, kind: type[T], request: _Request) -> Steps[T]:
        """Sends a request and parses the response. Raises UnexpectedAnswer if it does not match."""
        response = yield from self._send(request)
        envelope = response.json()
        try:
            return _parse(kind, {**envelope.get("meta", {}), **envelope["data"]})
        except (KeyError, TypeError):
            message = "The response does not match the convertd API."
            raise UnexpectedAnswer(message, status=response.http.status_code) from None

    def _send(self, request: _Request) -> Steps[_Response]:
        """Sends a request and retries it, within the limits of `retries` and `max_retry_wait`."""
        total_delay = 0.0
        for attempt in count():
            outcome = yield request
            if isinstance(outcome, _Response) and outcome.http.is_success:
                return outcome
            error = _to_error(request, outcome)
            delay = min(self._backoff * 2.0**attempt, _MAX_DELAY) * random.uniform(0.5, 1)
            running = isinstance(error, IdempotencyConflict)
            if not running:  # its Retry-After is an upper bound, not a minimum
                delay = max(delay, error.retry_after or 0)
            total_delay += delay
            if not error.retryable or total_delay > self._max_retry_wait or (attempt >= self._retries and not running):
                raise error
            yield delay
        raise AssertionError  # unreachable: count() is infinite


class _Connection(ABC, Generic[T]):
    """Base of both clients. All times are in seconds.

    `timeout` limits the time without data from the server. `backoff` is the delay before the first retry; it doubles
    with each retry. `max_retry_wait` limits the total delay between the attempts of a call.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 300.0,
        retries: int = 4,
        backoff: float = 0.5,
        max_retry_wait: float = 180.0,
    ) -> None:
        self.base_url = _base_url(base_url or os.environ.get("CONVERTD_URL") or "http://localhost:8000")
        self._calls = _Calls(retries, backoff, max_retry_wait)
        self._http = self._open(
            base_url=self.base_url,
            headers=_authorization((api_key or os.environ.get("CONVERTD_API_KEY") or "").strip()),
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    @abstractmethod
    def _open(self, **options: Any) -> T:
        """Creates the httpx client."""


def _sync_method(call: Callable[Concatenate[_Calls, P], Steps[T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(self._calls, *args, **kwargs))

    return method


def _async_method(
    call: Callable[Concatenate[_Calls, P], Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @wraps(call)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(self._calls, *args, **kwargs))

    return method


class Client(_Connection[httpx.Client]):
    """Synchronous client. Thread-safe."""

    convert = _sync_method(_Calls.convert)
    inspect = _sync_method(_Calls.inspect)
    merge_pdfs = _sync_method(_Calls.merge_pdfs)
    delete_pages = _sync_method(_Calls.delete_pages)
    upload = _sync_method(_Calls.upload)
    file = _sync_method(_Calls.file)
    convert_file = _sync_method(_Calls.convert_file)
    download = _sync_method(_Calls.download)
    delete_file = _sync_method(_Calls.delete_file)
    create_batch = _sync_method(_Calls.create_batch)
    add_to_batch = _sync_method(_Calls.add_to_batch)
    convert_batch = _sync_method(_Calls.convert_batch)
    batch = _sync_method(_Calls.batch)
    convert_many = _sync_method(_Calls.convert_many)
    formats = _sync_method(_Calls.formats)
    conversion = _sync_method(_Calls.conversion)
    tools = _sync_method(_Calls.tools)
    account = _sync_method(_Calls.account)
    usage = _sync_method(_Calls.usage)
    keys = _sync_method(_Calls.keys)
    create_key = _sync_method(_Calls.create_key)
    rotate_key = _sync_method(_Calls.rotate_key)
    revoke_key = _sync_method(_Calls.revoke_key)
    purchase = _sync_method(_Calls.purchase)
    register = _sync_method(_Calls.register)
    verify = _sync_method(_Calls.verify)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, **options: Any) -> httpx.Client:
        return httpx.Client(**options)

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._execute(step))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    def _execute(self, step: _Request | float) -> _Response | httpx.TransportError | None:
        if not isinstance(step, _Request):
            time.sleep(step)
            return None
        try:
            with self._http.stream(**step.arguments()) as response:
                received = _Response(response, step.sink)
                for block in response.iter_bytes():
                    received.feed(block)
                return received
        except httpx.TransportError as error:
            return error


class AsyncClient(_Connection[httpx.AsyncClient]):
    """Asynchronous client for asyncio."""

    convert = _async_method(_Calls.convert)
    inspect = _async_method(_Calls.inspect)
    merge_pdfs = _async_method(_Calls.merge_pdfs)
    delete_pages = _async_method(_Calls.delete_pages)
    upload = _async_method(_Calls.upload)
    file = _async_method(_Calls.file)
    convert_file = _async_method(_Calls.convert_file)
    download = _async_method(_Calls.download)
    delete_file = _async_method(_Calls.delete_file)
    create_batch = _async_method(_Calls.create_batch)
    add_to_batch = _async_method(_Calls.add_to_batch)
    convert_batch = _async_method(_Calls.convert_batch)
    batch = _async_method(_Calls.batch)
    convert_many = _async_method(_Calls.convert_many)
    formats = _async_method(_Calls.formats)
    conversion = _async_method(_Calls.conversion)
    tools = _async_method(_Calls.tools)
    account = _async_method(_Calls.account)
    usage = _async_method(_Calls.usage)
    keys = _async_method(_Calls.keys)
    create_key = _async_method(_Calls.create_key)
    rotate_key = _async_method(_Calls.rotate_key)
    revoke_key = _async_method(_Calls.revoke_key)
    purchase = _async_method(_Calls.purchase)
    register = _async_method(_Calls.register)
    verify = _async_method(_Calls.verify)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**options)

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._execute(step))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    async def _execute(self, step: _Request | float) -> _Response | httpx.TransportError | None:
        if not isinstance(step, _Request):
            await asyncio.sleep(step)
            return None
        try:
            async with self._http.stream(**step.arguments()) as response:
                received = _Response(response, step.sink)
                async for block in response.aiter_bytes():
                    received.feed(block)
                return received
        except httpx.TransportError as error:
            return error


def _to_error(request: _Request, outcome: _Response | httpx.TransportError | None) -> ConvertdError:
    """Returns the error of a failed attempt; `retryable` is set if another attempt is safe and may succeed."""
    if not isinstance(outcome, _Response):
        interrupted = isinstance(outcome, httpx.NetworkError | httpx.TimeoutException | httpx.RemoteProtocolError)
        not_sent = isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout)
        failed = ConnectionFailed(f"The connection failed: {outcome or type(outcome).__name__}.")
        failed.retryable = not_sent or (interrupted and request.repeatable)
        failed.__cause__ = outcome
        return failed
    status = outcome.http.status_code
    after = outcome.http.headers.get("Retry-After", "")
    seconds = int(after) if after.isdecimal() else None
    body = outcome.json().get("error")
    if not isinstance(body, dict):
        retryable = status in (502, 503, 504) and request.repeatable
        message = f"The server returned status {status} with an unexpected body."
        return UnexpectedAnswer(message, {"retryable": retryable}, status=status, retry_after=seconds)
    kind = next((kind for kind in ConvertdError.__subclasses__() if kind.code == body.get("code")), ConvertdError)
    error = kind(str(body.get("message")), body, status=status, retry_after=seconds)
    error.retryable = error.retryable and (request.repeatable or isinstance(error, RateLimited | NotReady))
    return error


def _to_fault(error: ConvertdError) -> Fault:
    return Fault(error.code, error.message, error.reason, error.retryable)


def _parse(kind: type[T], values: Mapping[str, Any]) -> T:
    """Builds a dataclass from JSON. Ignores unknown fields, which newer servers may send."""
    hints = get_type_hints(kind)
    names = [declared.name for declared in fields(cast(Any, kind)) if declared.name in values]
    return kind(**{name: _parse_value(hints[name], values[name]) for name in names})


def _parse_value(hint: Any, value: Any) -> Any:
    inner = get_args(hint)
    if value is not None and NoneType in inner:
        return _parse_value(inner[0], value)
    if is_dataclass(hint):
        return _parse(cast(type[Any], hint), value)
    return tuple(_parse_value(inner[0], item) for item in value) if Ellipsis in inner else value


@contextmanager
def _open_uploads(sources: Sequence[Source], name: str | None, progress: Progress | None) -> Iterator[list[_Upload]]:
    """Opens the sources. Copies unseekable ones to a temporary file, so that they can be sent again."""
    with ExitStack() as stack:
        uploads = [_Upload(stack.enter_context(_open_source(source)), name or _filename(source)) for source in sources]
        if progress is not None:
            total = sum(upload.size for upload in uploads)
            for upload in uploads:
                upload.on_read = lambda: progress("upload", sum(upload.sent for upload in uploads), total)
        yield uploads


@contextmanager
def _open_source(source: Source) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield file
    elif source.seekable():
        yield source
    else:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(source, copy)
            yield copy


def _filename(source: Source) -> str:
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return (Path(path).name if isinstance(path, str | os.PathLike) else "") or "file"


@contextmanager
def _destination(path: Path | None) -> Iterator[BinaryIO]:
    """Opens a temporary file and renames it to `path` on success; without a path, an in-memory buffer."""
    if path is None:
        yield io.BytesIO()
        return
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _outputs(paths: Sequence[Path], target: str, folder: FilePath | None) -> dict[Path, Path]:
    """Returns the result path for each source path. Raises ValueError for conflicts."""
    outputs = {path: Path(folder or path.parent, f"{path.stem}.{target.lower()}") for path in paths}
    if len(set(outputs.values())) < len(paths):
        raise ValueError("Two results would have the same path.")
    if any(output.exists() and output.samefile(path) for path, output in outputs.items()):
        raise ValueError("A result would overwrite its source.")
    return outputs


def _base_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The address of the service must be a URL like https://host.")
    return url.rstrip("/").removesuffix("/api/v1") + "/api/v1"


def _authorization(key: str) -> dict[str, str]:
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("The API key contains invalid characters.")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _form(**fields: OptionValue) -> dict[str, str]:
    """The fields as text: strings as they are, other values as in JSON."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return {name: text for name, text in texts.items() if fields[name] is not None}


def _result_path(path: Path, container: str | None) -> Path:
    """The path of a result. The suffix is .zip for archives, whatever the output format."""
    return path.with_suffix(".zip") if container == "zip" else path


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _new_key() -> str:
    return secrets.token_urlsafe(24)
