"""Files on the servers of others, by URLs of clients: fetched to be converted, and results that are sent there."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote
from weakref import WeakValueDictionary

import httpx

from engine.errors import ConversionError
from engine.executor.detector import Detector
from engine.network import FetchedPage, same_origin
from engine.outcome import Outcome
from web.api.errors import FileTooLarge, InvalidParameter
from web.api.headers import content_type, extended_filename, parse_header
from web.metrics.service import RemoteFileMetrics
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import MAX_TOTAL, RemoteFile, Upload, identify
from web.services.conversions.task_requests import headers_of_page
from web.services.files.work_files import WorkFile, WorkFiles
from web.services.webhooks.outgoing import Outgoing, OutgoingError

FETCH_SECONDS = 30.0
"""The time in which all files of a request have to arrive."""

TRIES = 3
"""The maximum number of attempts to send a result."""

TRY_SECONDS = 20.0
"""The seconds of each attempt to send a result."""

_PAUSE = 1.0  # seconds before another try
_MAX_NAME = 4096  # characters of a file name that are read


class ExportFailed(ConversionError):
    """A result could not be sent to the URL that the client has named for it."""

    reason = "export_failed"


class RemoteFiles:
    """Fetches files and sends results. An account fetches as many files at a time as it may have conversions running.

    All files of a request have to arrive within `seconds`; an attempt to send a result may take `try_seconds`.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        work_files: WorkFiles,
        detector: Detector,
        metrics: RemoteFileMetrics,
        seconds: float = FETCH_SECONDS,
        try_seconds: float = TRY_SECONDS,
    ) -> None:
        self._outgoing = outgoing
        self._work_files = work_files
        self._detector = detector
        self._metrics = metrics
        self.seconds = seconds
        self.try_seconds = try_seconds
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def check(self, files: Iterable[RemoteFile]) -> None:
        """Raises InvalidParameter if a URL is malformed, or its host is an address that must not be reached."""
        for file in files:
            try:
                self._outgoing.check_url(file.url)
            except OutgoingError as error:
                raise url_error(error, file.param) from None

    async def send(self, target: RemoteFile, result: WorkFile, outcome: Outcome) -> None:
        """Sends a result by PUT. Raises ExportFailed if it is not accepted in three tries."""
        size = outcome.processed_size
        headers = httpx.Headers({"Content-Type": content_type(outcome.media_type)})
        headers.update({**target.headers, "Content-Length": str(size)})
        for number in range(1, TRIES + 1):
            request = self._outgoing.request(
                "PUT", target.url, seconds=self.try_seconds, headers=headers, content=result.blocks()
            )
            try:
                async with request as response:
                    status = response.status
                if httpx.codes.is_success(status):
                    self._metrics.record("export")
                    return
                error = OutgoingError("http_status", f"The URL responds with the status {status}.", status)
            except OutgoingError as failure:
                error = failure
            if number < TRIES:
                await asyncio.sleep(_PAUSE)
        self._metrics.record("export", error.reason)
        details = {} if error.status is None else {"status": error.status}
        raise ExportFailed(f"The result could not be sent. {error}", details=details)

    @asynccontextmanager
    async def fetch(
        self, account: Account, files: Sequence[RemoteFile], seconds: float | None = None
    ) -> AsyncIterator[tuple[Upload, ...]]:
        """Yields the files, which exist during the block.

        Raises InvalidParameter with the reason if one cannot be fetched, FileTooLarge, and RateLimited and NoSpace
        without space for them.
        """
        ends = asyncio.get_running_loop().time() + (self.seconds if seconds is None else seconds)
        async with AsyncExitStack() as stack:
            total = _Total(max(account.tier.max_file_size, MAX_TOTAL))
            targets = [stack.enter_context(self._work_files.create(account.tenant.id)) for _ in files]
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._fetch(account, file, target, ends, total))
                        for file, target in zip(files, targets, strict=True)
                    ]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            yield tuple(task.result() for task in tasks)

    async def _fetch(
        self, account: Account, file: RemoteFile, target: WorkFile, ends: float, total: "_Total"
    ) -> Upload:
        limit = account.tier.max_file_size
        tenant = account.tenant
        loop = asyncio.get_running_loop()
        turns = self._turns.setdefault(tenant.id, asyncio.Semaphore(tenant.max_jobs))
        try:
            async with asyncio.timeout_at(ends), turns:
                request = self._outgoing.fetch(
                    file.url,
                    seconds=ends - loop.time(),
                    max_bytes=limit,
                    headers=file.browser_headers | file.headers,
                    any_status=file.any_status,
                )
                async with request as response:
                    async for part in response.body:
                        total.left -= len(part)
                        if total.left < 0:
                            raise OutgoingError("too_large", "The files of the request are too large together.")
                        await target.write(part)
        except TimeoutError:
            self._metrics.record("fetch", "timeout")
            message = "The URLs of the request were not fetched in time."
            raise InvalidParameter(message, reason="timeout", param=file.param) from None
        except OutgoingError as error:
            self._metrics.record("fetch", error.reason)
            too_large = error.reason == "too_large"
            raise (FileTooLarge(limit, file.param) if too_large else url_error(error, file.param)) from None
        self._metrics.record("fetch")
        upload = await identify(self._detector, target, _name(response.url, response.headers), fetched=True)
        url = str(response.url)
        sent = tuple(file.headers.items()) if same_origin(url, file.url) else ()
        return replace(upload, page=FetchedPage(url, response.status, headers_of_page(response.headers), sent))


@dataclass
class _Total:
    """The number of bytes that the files of a request may still have together."""

    left: int


def url_error(error: OutgoingError, param: str) -> InvalidParameter:
    """The error of a request whose field `param` has a URL that must not or cannot be reached."""
    details = {} if error.status is None else {"status": error.status}
    return InvalidParameter(str(error), reason=error.reason, param=param, details=details)


def _name(url: httpx.URL, headers: httpx.Headers) -> str:
    """The file name that a server gives: in Content-Disposition, or as the end of the path. It is untrusted."""
    disposition = headers.get("Content-Disposition", "").encode("utf-8", "replace")
    name = ""
    with suppress(InvalidParameter):  # too long
        plain = parse_header(disposition)[1].get(b"filename", b"")
        name = extended_filename(disposition) or plain.decode("utf-8", "replace")
    name = name or unquote(url.raw_path.decode("ascii").partition("?")[0].rpartition("/")[2])
    is_page = "." not in name and headers.get("Content-Type", "").lower().startswith("text/html")
    return (name[:_MAX_NAME] or "file") + (".html" if is_page else "")
