"""A client of the convertd API, for programs that wait and for programs that await.

One file that needs httpx alone: import it where convertd is installed, or take it along. `Client` and `AsyncClient`
have the same calls; address and key are arguments, or `CONVERTD_URL` and `CONVERTD_API_KEY`.

>>> from web.client import AsyncClient, Client, UnsupportedConversion
>>> with Client() as client:
...     made = client.convert("photo.heic", "webp", to="photo.webp", quality=80)
...     pixels = client.convert("photo.heic", "bmp").content  # bytes, where nothing says where to
...     for entry in client.convert_many(["photo.heic", "page.pdf"], "png", folder="."):
...         print(entry.path, entry.error)
photo.png None
page.png None
>>> made.path.name, made.output_format, made.warnings
('photo.webp', 'webp', ())

Every error is a ConvertdError, with one kind for each code of the API:

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

What may succeed when it is sent again, is: after a lost connection, a full queue or a crash, with pauses, and under one
idempotency key, so that it is charged once. Files stream from and to disk.
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
"""A file to send: its path, its bytes, or an open file, which is sent from its beginning."""

Progress: TypeAlias = "Callable[[str, int, int | None], object]"
"""Is told "upload" or "download", the bytes so far, and how many there will be, if that is known."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_LONGEST_PAUSE = 8.0  # seconds, where the server does not ask for more


class ConvertdError(Exception):
    """A call that failed; `str(error)` is a sentence.

    `status` is that of HTTP, 0 where there was no answer. `reason` narrows the code, `param` names the argument at
    fault, `retry_after` is in seconds. Where a result was made but could not be fetched, `details["file_id"]` names it.
    """

    code = "unknown"

    def __init__(
        self, message: str, told: Mapping[str, Any] = _NOTHING, *, status: int = 0, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = str(told.get("code", self.code))
        self.reason: str | None = told.get("reason")
        self.param: str | None = told.get("param")
        self.details: dict[str, Any] = dict(told.get("details") or {})
        self.request_id: str | None = told.get("request_id")
        self.retryable = bool(told.get("retryable"))
        self.status = status
        self.retry_after = retry_after


class InvalidApiKey(ConvertdError):
    """The key is missing or invalid."""

    code = "invalid_api_key"


class KeyNotVerified(ConvertdError):
    """The account's e-mail address is not verified yet."""

    code = "key_not_verified"


class RateLimited(ConvertdError):
    """Too many requests, or too much work at once, for longer than the client waits."""

    code = "rate_limit_exceeded"


class NoCredits(ConvertdError):
    """No credits remain; `purchase` buys some."""

    code = "no_credits"


class InvalidFileType(ConvertdError):
    """The file is of no known type, not of the one that is needed, or locked by a password."""

    code = "invalid_file_type"


class FileTooLarge(ConvertdError):
    """More bytes, pixels, frames or pages than are taken; `details` tell the limit."""

    code = "file_too_large"


class UnsupportedConversion(ConvertdError):
    """Nothing leads from this format to that one; `details["available"]` lists what there is."""

    code = "unsupported_conversion"


class ProcessingFailed(ConvertdError):
    """The conversion failed, and cost nothing."""

    code = "processing_failed"


class InvalidParameter(ConvertdError):
    """An argument is missing, or not what it should be; `param` names it."""

    code = "invalid_parameter"


class NotFound(ConvertdError):
    """No such thing in this account, or one that has expired."""

    code = "not_found"


class ServerError(ConvertdError):
    """The server failed in a way that nobody foresaw."""

    code = "server_error"


class MethodNotAllowed(ConvertdError):
    """The path exists, the verb does not: the server is older or newer than this client."""

    code = "method_not_allowed"


class IdempotencyConflict(ConvertdError):
    """The same call still runs, for longer than the client waits."""

    code = "idempotency_conflict"


class IdempotencyKeyReused(ConvertdError):
    """The file changed while it was sent again."""

    code = "idempotency_key_reused"


class RangeNotSatisfiable(ConvertdError):
    """A part of a file was asked for that it does not have."""

    code = "range_not_satisfiable"


class RequestTimeout(ConvertdError):
    """The upload was too slow for the server."""

    code = "request_timeout"


class NotReady(ConvertdError):
    """The service cannot work at the moment."""

    code = "not_ready"


class ConnectionFailed(ConvertdError):
    """The server cannot be reached, or the connection was lost on the way."""

    code = "connection_failed"


class UnexpectedAnswer(ConvertdError):
    """An answer that is not convertd's, such as a proxy's."""

    code = "unexpected_answer"


@dataclass(frozen=True)
class Warned:
    """Something that the result could not keep."""

    code: str
    message: str


@dataclass(frozen=True)
class Fault:
    """Why a file of many failed."""

    code: str
    message: str
    reason: str | None = None
    retryable: bool = False


@dataclass(frozen=True)
class StoredFile:
    """A file at the server: pending, or processed once something was made of it. Times are in UTC."""

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
    """Bytes that were fetched: in `content`, or in the file at `path`, whichever was asked for."""

    size: int
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True)
class Converted:
    """What was made: described, and fetched like a Download unless it was made of a stored file.

    Sizes are in bytes. The counts of pages and files are those of the PDF tools.
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
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True)
class Batch:
    """A batch, and how many of its files are in which state."""

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
    """How a file of many ended: `error` tells what went wrong.

    `result_file_id` is what `download` takes. `path` is where `convert_many` put the result.
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
    path: Path | None = None


@dataclass(frozen=True)
class BatchResult:
    """The conversion of a batch; entries stand in the order asked for."""

    results: tuple[BatchEntry, ...]
    total: int
    successful: int
    failed: int
    credits_remaining: int


@dataclass(frozen=True)
class Pair:
    """Two formats, of which one is converted into the other; in a usage report, how often, and for how much."""

    input_format: str
    output_format: str
    count: int = 0
    credits: int = 0


@dataclass(frozen=True)
class Formats:
    """Every supported pair."""

    conversions: tuple[Pair, ...]
    by_input_format: Mapping[str, Sequence[str]]
    total: int


@dataclass(frozen=True)
class Tool:
    """Something that the server can do."""

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
    """Requests of a window: how many, how many are left, and the Unix time at which it ends."""

    limit: int
    window_seconds: int
    remaining: int
    reset: int


@dataclass(frozen=True)
class Account:
    """The account: its balance, its tier, and the limits that come with it."""

    name: str
    email: str
    tier: str
    credits_remaining: int
    credits_total_purchased: int
    credits_used_total: int
    max_file_size: int
    created_at: str
    last_used_at: str | None
    rate_limit: RateLimit
    limits: Mapping[str, int]


@dataclass(frozen=True)
class Day:
    """A day of a usage report, YYYY-MM-DD; `failed` are among the `conversions`."""

    date: str
    conversions: int
    failed: int
    credits: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Usage:
    """What the account did in a period."""

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
    """A key, without its text."""

    key_id: str
    key_prefix: str
    name: str
    created_at: str | None = None
    last_used_at: str | None = None
    expires_at: str | None = None


@dataclass(frozen=True)
class NewKey(Key):
    """A key with its text, which is not shown again."""

    api_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Purchase:
    """A checkout to be opened in a browser; `amount` is in cents."""

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
    """A letter is on its way."""

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
    """A file as httpx reads it, from its beginning each time that it is sent."""

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
    """Where the bytes of a download go; what has arrived is not asked for again."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self._tag = ""
        self._total: int | None = None

    def headers(self) -> dict[str, str]:
        here = self._file.tell()
        resumed = {"Range": f"bytes={here}-", "If-Range": self._tag} if here and self._tag else {}
        return {"Accept-Encoding": "identity", **resumed}

    def begin(self, response: httpx.Response) -> None:
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            self._file.truncate(self._file.seek(0))
        self._tag = response.headers.get("ETag", "")
        length = response.headers.get("Content-Length", "")
        self._total = self._file.tell() + int(length) if length.isdecimal() else None

    def write(self, block: bytes) -> None:
        self._file.write(block)
        if self._progress is not None:
            self._progress("download", self._file.tell(), self._total)


@dataclass(frozen=True)
class _Request:
    """A request. What is not `repeatable` is not sent again where the server may have got it."""

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
        """The request in httpx's terms."""
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


class _Answer:
    """An answer as it arrives: a download goes to its sink, anything else is kept."""

    def __init__(self, response: httpx.Response, sink: _Sink | None) -> None:
        self.response = response
        self.body = bytearray()
        self._sink = sink if response.is_success else None
        if self._sink is not None:
            self._sink.begin(response)

    def take(self, block: bytes) -> None:
        if self._sink is not None:
            self._sink.write(block)
        else:
            self.body += block

    def json(self) -> Mapping[str, Any]:
        """The body, or nothing where it is no JSON object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}


Steps: TypeAlias = "Generator[_Request | float, _Answer | httpx.TransportError | None, T]"
"""A call: asks for requests to be sent and for pauses (in seconds), is told what came of them, and ends in a result."""


class _Calls:
    """Every call, described once for both clients."""

    def __init__(self, retries: int, backoff: float, patience: float) -> None:
        self._retries = retries
        self._backoff = backoff
        self._patience = patience

    def convert(
        self,
        source: Source,
        target: str,
        *,
        to: FilePath | None = None,
        name: str | None = None,
        quality: int | None = None,
        password: str | None = None,
        progress: Progress | None = None,
    ) -> Steps[Converted]:
        """Converts a file. The result is written to the file `to`, or else is the `content` of what is returned.

        `name` is what the source is called, `quality` is 1 to 100 for lossy formats.
        """
        form = _given(output_format=target, quality=quality, password=password)
        return (yield from self._make("/convert", form, "file", [source], name, to, progress))

    def merge_pdfs(
        self,
        sources: Sequence[Source],
        *,
        to: FilePath | None = None,
        password: str | None = None,
        progress: Progress | None = None,
    ) -> Steps[Converted]:
        """Makes one PDF of 2 to 20, in their order."""
        form = _given(password=password)
        return (yield from self._make("/pdf/merge", form, "files[]", sources, None, to, progress))

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
        """Makes a PDF without some pages, which count from 1: [2, 5], or "2,5,8-10"."""
        listed = pages if isinstance(pages, str) else ",".join(map(str, pages))
        form = _given(pages=listed, password=password)
        return (yield from self._make("/pdf/delete-pages", form, "file", [source], name, to, progress))

    def upload(self, source: Source, *, name: str | None = None, progress: Progress | None = None) -> Steps[StoredFile]:
        """Stores a file, to be converted later."""
        return (yield from self._store("/files/upload", source, name, progress))

    def file(self, file_id: str) -> Steps[StoredFile]:
        """What is known about a stored file."""
        return (yield from self._ask(StoredFile, _Request("GET", f"/files/{_safe(file_id)}")))

    def convert_file(
        self, file_id: str, target: str, *, quality: int | None = None, password: str | None = None
    ) -> Steps[Converted]:
        """Converts a stored file; `download` fetches the result."""
        body = {"output_format": target, "quality": quality, "password": password}
        request = _Request("POST", f"/files/{_safe(file_id)}/convert", body=body, key=_new_key())
        return (yield from self._ask(Converted, request))

    def download(
        self, file_id: str, *, to: FilePath | None = None, progress: Progress | None = None
    ) -> Steps[Download]:
        """Fetches a result. A connection that is lost goes on where it was; the file at `to` is whole or not there."""
        path = None if to is None else Path(to)
        with _destination(path) as file:
            sink = _Sink(file, progress)
            yield from self._send(_Request("GET", f"/files/{_safe(file_id)}/download", sink=sink))
            content = file.getvalue() if isinstance(file, io.BytesIO) else b""
            return Download(file.tell(), content, path)

    def delete_file(self, file_id: str) -> Steps[None]:
        """Erases a stored file and what was made of it."""
        yield from self._send(_Request("DELETE", f"/files/{_safe(file_id)}"))

    def create_batch(self, target: str) -> Steps[Batch]:
        """Begins a batch."""
        return (yield from self._ask(Batch, _Request("POST", "/batch", body={"output_format": target})))

    def add_to_batch(
        self, batch_id: str, source: Source, *, name: str | None = None, progress: Progress | None = None
    ) -> Steps[StoredFile]:
        """Stores a file in a batch."""
        return (yield from self._store(f"/batch/{_safe(batch_id)}/files", source, name, progress))

    def convert_batch(
        self,
        batch_id: str,
        file_ids: Sequence[str],
        target: str,
        *,
        quality: int | None = None,
        password: str | None = None,
    ) -> Steps[BatchResult]:
        """Converts files of a batch, side by side. What fails, fails alone."""
        body = {"file_ids": [*file_ids], "output_format": target, "quality": quality, "password": password}
        request = _Request("POST", f"/batch/{_safe(batch_id)}/convert", body=body, key=_new_key())
        return (yield from self._ask(BatchResult, request))

    def batch(self, batch_id: str) -> Steps[Batch]:
        """A batch and its files."""
        return (yield from self._ask(Batch, _Request("GET", f"/batch/{_safe(batch_id)}")))

    def convert_many(
        self,
        paths: Sequence[FilePath],
        target: str,
        *,
        folder: FilePath | None = None,
        quality: int | None = None,
        progress: Progress | None = None,
    ) -> Steps[tuple[BatchEntry, ...]]:
        """Converts files in as many batches as it takes, into the folder, or each beside its source.

        There is an entry for each path, in their order; what fails, fails alone. Raises ValueError where two results
        would be one file, or a result its own source.
        """
        made = _outputs([Path(path) for path in paths], target, folder)
        remaining, entries = iter(made.items()), list[BatchEntry]()
        while len(entries) < len(made):
            batch = yield from self.create_batch(target)
            chunk = dict(islice(remaining, batch.max_files or 1))
            entries += yield from self._convert_chunk(batch, chunk, target, quality, progress)
        return tuple(entries)

    def formats(self) -> Steps[Formats]:
        """What can be converted into what."""
        return (yield from self._ask(Formats, _Request("GET", "/formats")))

    def tools(self) -> Steps[tuple[Tool, ...]]:
        """What the server can do."""
        return (yield from self._ask(_Tools, _Request("GET", "/tools"))).tools

    def account(self) -> Steps[Account]:
        """The account of the key."""
        return (yield from self._ask(Account, _Request("GET", "/account")))

    def usage(self, period: str | None = None) -> Steps[Usage]:
        """What was done this month, in the month YYYY-MM, or since the day YYYY-MM-DD."""
        return (yield from self._ask(Usage, _Request("GET", "/account/usage", params=_given(period=period))))

    def keys(self) -> Steps[tuple[Key, ...]]:
        """The keys that work."""
        return (yield from self._ask(_Keys, _Request("GET", "/account/keys"))).keys

    def create_key(self, name: str | None = None) -> Steps[NewKey]:
        """A further key."""
        request = _Request("POST", "/account/keys", body=_given(name=name), repeatable=False)
        return (yield from self._ask(NewKey, request))

    def rotate_key(self, key_id: str, *, grace_period_seconds: int = 86_400) -> Steps[NewKey]:
        """A key in place of another, which goes on working for a while."""
        body = {"grace_period_seconds": grace_period_seconds}
        request = _Request("POST", f"/account/keys/{_safe(key_id)}/rotate", body=body, repeatable=False)
        return (yield from self._ask(NewKey, request))

    def revoke_key(self, key_id: str) -> Steps[None]:
        """Ends a key."""
        yield from self._send(_Request("DELETE", f"/account/keys/{_safe(key_id)}"))

    def purchase(self, pack: str, *, language: str = "en") -> Steps[Purchase]:
        """Opens a checkout for a pack: starter, pro or business."""
        body = {"pack": pack, "language": language}
        return (yield from self._ask(Purchase, _Request("POST", "/credits/purchase", body=body, key=_new_key())))

    def register(self, email: str, name: str) -> Steps[Registration]:
        """Asks for a letter with a link. Needs no key."""
        request = _Request("POST", "/register", body={"email": email, "name": name}, repeatable=False)
        return (yield from self._ask(Registration, request))

    def verify(self, token: str) -> Steps[NewKey]:
        """The key, for the token in the letter's link. Needs no key."""
        request = _Request("GET", "/verify", params={"token": token}, repeatable=False)
        return (yield from self._ask(NewKey, request))

    def _make(
        self,
        path: str,
        form: Mapping[str, str],
        part: str,
        sources: Sequence[Source],
        name: str | None,
        to: FilePath | None,
        progress: Progress | None,
    ) -> Steps[Converted]:
        # Described and then fetched, because only a stored result can be fetched in parts.
        with _opened(sources, name, progress) as uploads:
            parts = [(part, upload) for upload in uploads]
            made = yield from self._ask(Converted, _Request("POST", path, form=form, uploads=parts, key=_new_key()))
        try:
            got = yield from self.download(made.file_id, to=to, progress=progress)
        except ConvertdError as error:
            error.details["file_id"] = made.file_id
            raise
        return replace(made, content=got.content, path=got.path)

    def _store(self, path: str, source: Source, name: str | None, progress: Progress | None) -> Steps[StoredFile]:
        with _opened([source], name, progress) as uploads:
            request = _Request("POST", path, uploads=[("file", upload) for upload in uploads])
            return (yield from self._ask(StoredFile, request))

    def _convert_chunk(
        self, batch: Batch, chunk: Mapping[Path, Path], target: str, quality: int | None, progress: Progress | None
    ) -> Steps[list[BatchEntry]]:
        added: dict[str, Path] = {}
        ended: dict[Path, BatchEntry] = {}
        for path in chunk:
            try:
                added[(yield from self.add_to_batch(batch.batch_id, path, progress=progress)).file_id] = path
            except (InvalidFileType, FileTooLarge) as error:
                ended[path] = BatchEntry("", "failed", _fault(error))
        if added:
            result = yield from self.convert_batch(batch.batch_id, [*added], target, quality=quality)
            for entry in result.results:
                path = added[entry.file_id]
                ended[path] = yield from self._fetched(entry, chunk[path], progress)
        return [ended[path] for path in chunk]

    def _fetched(self, entry: BatchEntry, to: Path, progress: Progress | None) -> Steps[BatchEntry]:
        if entry.error is not None:
            return entry
        try:
            yield from self.download(entry.result_file_id or entry.file_id, to=to, progress=progress)
        except ConvertdError as error:
            return replace(entry, error=_fault(error))
        return replace(entry, path=to)

    def _ask(self, kind: type[T], request: _Request) -> Steps[T]:
        """Sends a request, and reads what is told in the answer."""
        answer = yield from self._send(request)
        envelope = answer.json()
        try:
            return _read(kind, {**envelope.get("meta", {}), **envelope["data"]})
        except (KeyError, TypeError):
            message = "The answer is not one of this API."
            raise UnexpectedAnswer(message, status=answer.response.status_code) from None

    def _send(self, request: _Request) -> Steps[_Answer]:
        """Sends a request, again where that may help, within the bounds of retries and patience."""
        waited = 0.0
        for attempt in count():
            outcome = yield request
            if isinstance(outcome, _Answer) and outcome.response.is_success:
                return outcome
            error = _error(request, outcome)
            pause = min(self._backoff * 2.0**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1)
            running = isinstance(error, IdempotencyConflict)
            if not running:  # whose Retry-After is the longest that it can take
                pause = max(pause, error.retry_after or 0)
            waited += pause
            if not error.retryable or waited > self._patience or (attempt >= self._retries and not running):
                raise error
            yield pause
        raise AssertionError  # count() has no end


class _Connection(ABC, Generic[T]):
    """What both clients are made of. A call may wait for `patience` seconds in all between its attempts.

    `timeout` is how long the server may be silent, in seconds; `backoff` is the first pause, and doubles.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 300.0,
        retries: int = 4,
        backoff: float = 0.5,
        patience: float = 180.0,
    ) -> None:
        self.base_url = _address(base_url or os.environ.get("CONVERTD_URL") or "http://localhost:8000")
        self._calls = _Calls(retries, backoff, patience)
        self._http = self._open(
            base_url=self.base_url,
            headers=_authorization((api_key or os.environ.get("CONVERTD_API_KEY") or "").strip()),
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    @abstractmethod
    def _open(self, **options: Any) -> T:
        """The connection pool."""


def _blocking(call: Callable[Concatenate[_Calls, P], Steps[T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(self._calls, *args, **kwargs))

    return method


def _awaiting(call: Callable[Concatenate[_Calls, P], Steps[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @wraps(call)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(self._calls, *args, **kwargs))

    return method


class Client(_Connection[httpx.Client]):
    """The API for programs that wait; threads may share it."""

    convert = _blocking(_Calls.convert)
    merge_pdfs = _blocking(_Calls.merge_pdfs)
    delete_pages = _blocking(_Calls.delete_pages)
    upload = _blocking(_Calls.upload)
    file = _blocking(_Calls.file)
    convert_file = _blocking(_Calls.convert_file)
    download = _blocking(_Calls.download)
    delete_file = _blocking(_Calls.delete_file)
    create_batch = _blocking(_Calls.create_batch)
    add_to_batch = _blocking(_Calls.add_to_batch)
    convert_batch = _blocking(_Calls.convert_batch)
    batch = _blocking(_Calls.batch)
    convert_many = _blocking(_Calls.convert_many)
    formats = _blocking(_Calls.formats)
    tools = _blocking(_Calls.tools)
    account = _blocking(_Calls.account)
    usage = _blocking(_Calls.usage)
    keys = _blocking(_Calls.keys)
    create_key = _blocking(_Calls.create_key)
    rotate_key = _blocking(_Calls.rotate_key)
    revoke_key = _blocking(_Calls.revoke_key)
    purchase = _blocking(_Calls.purchase)
    register = _blocking(_Calls.register)
    verify = _blocking(_Calls.verify)

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
                step = steps.send(self._do(step))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    def _do(self, step: _Request | float) -> _Answer | httpx.TransportError | None:
        if not isinstance(step, _Request):
            time.sleep(step)
            return None
        try:
            with self._http.stream(**step.arguments()) as response:
                answer = _Answer(response, step.sink)
                for block in response.iter_bytes():
                    answer.take(block)
                return answer
        except httpx.TransportError as error:
            return error


class AsyncClient(_Connection[httpx.AsyncClient]):
    """The API for programs that await, on asyncio."""

    convert = _awaiting(_Calls.convert)
    merge_pdfs = _awaiting(_Calls.merge_pdfs)
    delete_pages = _awaiting(_Calls.delete_pages)
    upload = _awaiting(_Calls.upload)
    file = _awaiting(_Calls.file)
    convert_file = _awaiting(_Calls.convert_file)
    download = _awaiting(_Calls.download)
    delete_file = _awaiting(_Calls.delete_file)
    create_batch = _awaiting(_Calls.create_batch)
    add_to_batch = _awaiting(_Calls.add_to_batch)
    convert_batch = _awaiting(_Calls.convert_batch)
    batch = _awaiting(_Calls.batch)
    convert_many = _awaiting(_Calls.convert_many)
    formats = _awaiting(_Calls.formats)
    tools = _awaiting(_Calls.tools)
    account = _awaiting(_Calls.account)
    usage = _awaiting(_Calls.usage)
    keys = _awaiting(_Calls.keys)
    create_key = _awaiting(_Calls.create_key)
    rotate_key = _awaiting(_Calls.rotate_key)
    revoke_key = _awaiting(_Calls.revoke_key)
    purchase = _awaiting(_Calls.purchase)
    register = _awaiting(_Calls.register)
    verify = _awaiting(_Calls.verify)

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
                step = steps.send(await self._do(step))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    async def _do(self, step: _Request | float) -> _Answer | httpx.TransportError | None:
        if not isinstance(step, _Request):
            await asyncio.sleep(step)
            return None
        try:
            async with self._http.stream(**step.arguments()) as response:
                answer = _Answer(response, step.sink)
                async for block in response.aiter_bytes():
                    answer.take(block)
                return answer
        except httpx.TransportError as error:
            return error


def _error(request: _Request, outcome: _Answer | httpx.TransportError | None) -> ConvertdError:
    """What went wrong, and whether sending the request again may help."""
    if not isinstance(outcome, _Answer):
        lost = isinstance(outcome, httpx.NetworkError | httpx.TimeoutException | httpx.RemoteProtocolError)
        unsent = isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout)
        failed = ConnectionFailed(f"The connection failed: {outcome or type(outcome).__name__}.")
        failed.retryable = unsent or (lost and request.repeatable)
        failed.__cause__ = outcome
        return failed
    status = outcome.response.status_code
    after = outcome.response.headers.get("Retry-After", "")
    seconds = int(after) if after.isdecimal() else None
    told = outcome.json().get("error")
    if not isinstance(told, dict):
        down = status in (502, 503, 504) and request.repeatable
        message = f"The server answered {status}, and not in the way of this API."
        return UnexpectedAnswer(message, {"retryable": down}, status=status, retry_after=seconds)
    kind = next((kind for kind in ConvertdError.__subclasses__() if kind.code == told.get("code")), ConvertdError)
    error = kind(str(told.get("message")), told, status=status, retry_after=seconds)
    error.retryable = error.retryable and (request.repeatable or isinstance(error, RateLimited | NotReady))
    return error


def _fault(error: ConvertdError) -> Fault:
    return Fault(error.code, error.message, error.reason, error.retryable)


def _read(kind: type[T], values: Mapping[str, Any]) -> T:
    """The values as that dataclass; those that it does not know are left out."""
    hints = get_type_hints(kind)
    names = [one.name for one in fields(cast(Any, kind)) if one.name in values]
    return kind(**{name: _value(hints[name], values[name]) for name in names})


def _value(hint: Any, value: Any) -> Any:
    inner = get_args(hint)
    if value is not None and NoneType in inner:
        return _value(inner[0], value)
    if is_dataclass(hint):
        return _read(cast(type[Any], hint), value)
    return tuple(_value(inner[0], one) for one in value) if Ellipsis in inner else value


@contextmanager
def _opened(sources: Sequence[Source], name: str | None, progress: Progress | None) -> Iterator[list[_Upload]]:
    """The sources as they are sent; what cannot be read twice is copied to disk first."""
    with ExitStack() as stack:
        uploads = [_Upload(stack.enter_context(_file(source)), name or _name(source)) for source in sources]
        if progress is not None:
            total = sum(upload.size for upload in uploads)
            for upload in uploads:
                upload.on_read = lambda: progress("upload", sum(one.sent for one in uploads), total)
        yield uploads


@contextmanager
def _file(source: Source) -> Iterator[BinaryIO]:
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


def _name(source: Source) -> str:
    called = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return (Path(called).name if isinstance(called, str | os.PathLike) else "") or "file"


@contextmanager
def _destination(path: Path | None) -> Iterator[BinaryIO]:
    """A file for what arrives, which takes its name when all of it is there."""
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
    """Where each result goes."""
    made = {path: Path(folder or path.parent, f"{path.stem}.{target.lower()}") for path in paths}
    if len(set(made.values())) < len(paths):
        raise ValueError("Two results would be written to the same file.")
    if any(output.exists() and output.samefile(path) for path, output in made.items()):
        raise ValueError("A file would be overwritten with its own conversion.")
    return made


def _address(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The address of the service must look like https://host.")
    return url.rstrip("/").removesuffix("/api/v1") + "/api/v1"


def _authorization(key: str) -> dict[str, str]:
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("The API key holds characters that no key has.")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _given(**fields: object) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items() if value is not None}


def _safe(name: str) -> str:
    return quote(name, safe="")


def _new_key() -> str:
    return secrets.token_urlsafe(24)
