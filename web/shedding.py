"""Load shedding: orders that an overloaded server has no room for are refused at next to no cost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import responses
from time import monotonic, time
from typing import Any

from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.web import Application, RequestHandler

from config.tariff import RATE_WINDOW
from storage.errors import InvalidKey
from storage.ids import new_id
from web import access
from web.answer_bytes import message
from web.connection import connection_of
from web.envelopes import envelope
from web.errors import STATUS, ApiError
from web.headers import common, date, limits
from web.orders import OrderHandler
from web.retries import Refused
from web.services.accounts import Account, shown
from web.services.all import Services
from web.services.turns import Expected
from web.surplus import Surplus
from web.trail import Trail


class SheddingApplication(Application):
    """An application that refuses orders of accounts it has just seen before it makes a handler, or asks the database.

    Whoever else cannot be served is refused by the handler. The settings hold `routes`: the name of the paths of each
    handler.
    """

    def get_handler_delegate(  # type: ignore[override]
        self,
        request: HTTPServerRequest,
        target_class: type[RequestHandler],
        target_kwargs: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> HTTPMessageDelegate:
        arguments = target_kwargs or {}
        if request.method == "POST" and issubclass(target_class, OrderHandler):
            with suppress(InvalidKey):
                key = shown(request.headers.get("Authorization"))
                asked = _Asked(arguments["services"], request, self.settings["routes"][target_class], key)
                admission = asked.admission()
                if isinstance(admission, _No):
                    return _Refusal(asked, admission)
                arguments = {**arguments, "expected": admission}
        return super().get_handler_delegate(request, target_class, arguments, *args, **kwargs)


@dataclass(frozen=True)
class _No:
    """That there is no room for a request of the account."""

    account: Account
    error: ApiError


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class _Asked:
    """An order, made once or again and again; `route` is the pattern of its paths, `key` the SHA-256 of its key."""

    services: Services
    request: HTTPServerRequest
    route: str
    key: str

    def admission(self) -> Expected | _No | None:
        """Whether it may come; None where that is not known at once."""
        account = self.services.accounts.recent(self.key)
        if account is None or not account.verified:
            return None
        try:
            return self.services.turns.expect(account.id, account.tier.max_concurrent)
        except ApiError as error:
            return _No(account, error)

    async def refuse(self, no: _No, began: float) -> _Answer:
        """What it is answered, which is noted, too. It `began` at this time of the monotonic clock."""
        request_id, status = new_id("req"), STATUS[no.error.code]
        body = json.dumps(envelope(no.error, request_id), ensure_ascii=False).encode()
        answer = _Answer(status, await self._headers(no, request_id, len(body)), body)
        exchange = access.Exchange(
            method=str(self.request.method),
            path=self.request.path,
            route=self.route,
            status=status,
            seconds=monotonic() - began,
            trail=Trail(request_id),
            account=no.account,
            error=no.error,
            sent=len(body),
        )
        access.note(self.services, exchange)
        return answer

    async def _headers(self, no: _No, request_id: str, length: int) -> dict[str, str]:
        limit = self.services.settings.rate_limit(no.account.tier.name)
        verdict = await self.services.limiter.peek(no.account.counted_as, limit, RATE_WINDOW)
        return {
            "Content-Type": "application/json",
            "Content-Length": str(length),
            "Date": date(int(time())),
            **common(request_id),
            **limits(verdict),
            **no.error.headers,
            **({"Connection": "close"} if self.services.traffic.stopping else {}),
        }

    def again(self) -> Callable[[], Awaitable[bytes]] | None:
        """What refuses it once more, if there is still no room."""
        admission = None if self.services.traffic.stopping else self.admission()
        if isinstance(admission, _No):
            return partial(self._refuse_again, admission, monotonic())
        if admission is not None:
            admission.end()
        return None

    async def _refuse_again(self, no: _No, began: float) -> bytes:
        answer = await self.refuse(no, began)
        return message(answer.status, answer.headers, answer.body)


class _Refusal(HTTPMessageDelegate):
    """A request that is answered with an error, whatever its body."""

    def __init__(self, asked: _Asked, no: _No) -> None:
        self._asked = asked
        self._no = no
        self._began = monotonic()
        self._received = 0  # bytes of the body
        self._repeatable = False
        self._surplus: Surplus | None = None

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        answer = await self._asked.refuse(self._no, self._began)
        status_line = ResponseStartLine("", answer.status, responses[answer.status])
        self._connection().write_headers(status_line, HTTPHeaders(answer.headers), answer.body)
        self._surplus = Surplus(self._cut_off)
        # Of others, more is to be known than where they end.
        plain = not {"Expect", "Transfer-Encoding"} & set(headers)
        self._repeatable = plain and self._asked.request.version == "HTTP/1.1"
        if "Expect" in headers:  # it has nothing on the way yet
            self.finish()

    def data_received(self, chunk: bytes) -> None:
        self._received += len(chunk)
        if self._surplus is not None and self._surplus.is_too_much(chunk):
            self._cut_off()

    def finish(self) -> None:
        self.on_connection_close()
        connection = connection_of(self._asked.request.server_connection)
        again = Refused(connection.head, self._received, self._asked.again) if self._repeatable else None
        connection.put_off(again)
        self._connection().finish()

    def on_connection_close(self) -> None:
        if self._surplus is not None:
            self._surplus.end()

    def _cut_off(self) -> None:
        self._connection().finish()

    def _connection(self) -> HTTPConnection:
        assert self._asked.request.connection is not None
        return self._asked.request.connection
