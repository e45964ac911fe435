"""What clients want to be answered with."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar

from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler

from config.pricing import RATE_WINDOW
from storage.ids import new_id
from storage.rate_limits import RateLimitStatus, unused
from web.api.errors import STATUS, PublicError, envelope, error_headers, public_error
from web.api.headers import DOWNLOAD_HEADERS, common_headers, rate_limit_headers
from web.http import access_log
from web.http.server import connection_of
from web.metrics.conversions import OTHER
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.container import Services
from web.services.files import content_disposition

_JSON = "application/json"


def wants_json(accept: str) -> bool:
    """Whether an Accept header names JSON, and no other concrete type more dearly."""
    json_weight, other_weight = 0.0, 0.0
    for entry in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        weight = _weight(parameters)
        if media_type == _JSON:
            json_weight = max(json_weight, weight)
        elif "*" not in media_type:
            other_weight = max(other_weight, weight)
    return json_weight > 0 and json_weight >= other_weight


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            # What is no weight counts for nothing.
            return float(value) if re.fullmatch(r"\s*(0(\.\d*)?|1(\.0*)?)\s*", value, re.ASCII) else 0.0
    return 1.0


log = logging.getLogger("convertd.web")

_CLIENT_GONE = 499  # for the log; there is nobody to send it to


class Answers(RequestHandler):
    """The half of a handler that faces the client. `always` are headers of all that it answers."""

    always: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def initialize(self, services: Services) -> None:
        self.services = services
        self.account: Account | None = None
        self.received = 0  # bytes of the body
        self.sent = 0  # bytes of the answer, as it was written
        self.context = RequestContext(self.request_id)
        self._error: PublicError | None = None
        self.ended = False
        self._head_sent = False
        self._gone = False
        self._work: asyncio.Task[None] | None = None
        self.show(unused(services.settings.rate_limit_anonymous, RATE_WINDOW, time.time()))
        services.in_flight.begin(self.request_id)

    def set_default_headers(self) -> None:
        # Runs before initialize, and again when an error clears what was set.
        if "request_id" not in vars(self):
            self.request_id = new_id("req")
        for name, value in {**common_headers(self.request_id), **self.always}.items():
            self.set_header(name, value)

    def compute_etag(self) -> str | None:
        return None  # the request id makes every answer another

    def show(self, verdict: RateLimitStatus) -> None:
        """Puts where the client's limit stands into the headers."""
        self._verdict = verdict

    def flush(self, include_footers: bool = False) -> asyncio.Future[None]:
        if not self._head_sent:
            self._head_sent = True
            for name, value in rate_limit_headers(self._verdict).items():
                self.set_header(name, value)
            if self.services.in_flight.stopping:
                self.set_header("Connection", "close")
        return super().flush(include_footers)

    def reply(self, data: Mapping[str, Any]) -> None:
        """Answers with JSON in the envelope of a success."""
        meta: dict[str, Any] = {"request_id": self.request_id}
        if self.account:
            meta["credits_remaining"] = self.account.credits_remaining
            self.set_header("X-Credits-Remaining", str(self.account.credits_remaining))
        self.write_json({"data": data, "meta": meta})

    def write_json(self, value: Mapping[str, Any]) -> None:
        """Makes this JSON the body, complete with its length."""
        self.write_encoded(json.dumps(value, ensure_ascii=False).encode())

    def write_encoded(self, body: bytes) -> None:
        """The same of what is JSON already."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", str(len(body)))
        self.write(body)

    async def send_file(self, blocks: AsyncIterator[bytes], *, size: int, media_type: str, filename: str) -> None:
        """Answers with `size` bytes for the client to save, block by block."""
        self.set_header("Content-Type", media_type)
        self.set_header("Content-Length", str(size))
        self.set_header("Content-Disposition", content_disposition(filename))
        for name, value in DOWNLOAD_HEADERS.items():
            self.set_header(name, value)
        if self.account:
            self.set_header("X-Credits-Remaining", str(self.account.credits_remaining))
        if self.request.method == "HEAD":
            return
        async for block in blocks:
            self.write(block)
            await self.flush()

    def write(self, chunk: str | bytes | dict[str, Any]) -> None:
        if self.request.method != "HEAD":
            self.sent += len(chunk) if isinstance(chunk, bytes) else len(str(chunk).encode())
        super().write(chunk)

    async def unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work of a verb, and gives it up when the client goes away."""
        self._work = asyncio.ensure_future(work)
        if self._gone:
            self._work.cancel()
        try:
            await self._work
        except (asyncio.CancelledError, StreamClosedError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._gone:
                raise
            raise Finish from None

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._gone:
            return
        self._gone = True
        if not self._head_sent:
            self.set_status(_CLIENT_GONE, "Client Closed Request")
        if self._work is not None:
            self._work.cancel()
        elif connection_of(self.request.server_connection).receiving and not self.ended:
            # The verb will not run, and nothing else will end this request.
            self.log_access()
            self.on_finish()

    def on_finish(self) -> None:
        self.ended = True
        self.services.in_flight.end(self.request_id)

    def write_problem(self, error: BaseException | None) -> None:
        """Makes the error's envelope the answer."""
        shown = public_error(error)
        self.mark(shown)
        self.write_json(envelope(shown, self.request_id))

    def mark(self, error: PublicError) -> None:
        """Gives the answer the status and the headers of the error."""
        self._error = error
        self.set_status(STATUS[error.code])
        for name, value in error_headers(error).items():
            self.set_header(name, value)

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # What was foreseen is in the line of the request.
        if value is not None and not isinstance(value, PublicError | HTTPError):
            fields = {"request_id": self.request_id}
            log.error("request failed", exc_info=(type(value), value, tb), extra={"fields": fields})

    @property
    def route(self) -> str:
        """The pattern of the paths that lead here."""
        return str(self.settings["routes"].get(type(self), OTHER))

    def log_access(self) -> None:
        """Records the answered request in the access log, the metrics and the account's request log."""
        exchange = access_log.AccessRecord(
            method=str(self.request.method),
            path=self.request.path,
            route=self.route,
            status=self.get_status(),
            seconds=self.request.request_time(),
            context=self.context,
            account=self.account,
            error=self._error,
            received=self.received,
            sent=self.sent,
        )
        access_log.record(self.services, exchange)
