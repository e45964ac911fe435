"""Load shedding: orders that an overloaded server has no room for are refused at next to no cost."""

from __future__ import annotations

import json
from http.client import responses
from time import time
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
from storage.ids import new_id
from web import access
from web.connection import connection_of
from web.envelopes import envelope
from web.errors import STATUS, ApiError
from web.headers import common, date, limits
from web.orders import OrderHandler
from web.services.accounts import Account
from web.services.all import Services
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
            services: Services = arguments["services"]
            account = services.accounts.recent(request.headers.get("Authorization"))
            if account is not None and account.verified:
                try:
                    expected = services.turns.expect(account.id, account.tier.max_concurrent)
                except ApiError as error:
                    return _Refusal(services, request, self.settings["routes"][target_class], account, error)
                arguments = {**arguments, "expected": expected}
        return super().get_handler_delegate(request, target_class, arguments, *args, **kwargs)


class _Refusal(HTTPMessageDelegate):
    """A request that is answered with an error, whatever its body."""

    def __init__(
        self, services: Services, request: HTTPServerRequest, route: str, account: Account, error: ApiError
    ) -> None:
        self._services = services
        self._request = request
        self._route = route
        self._account = account
        self._error = error
        self._surplus: Surplus | None = None

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        request_id, status = new_id("req"), STATUS[self._error.code]
        body = json.dumps(envelope(self._error, request_id), ensure_ascii=False).encode()
        answer = ResponseStartLine("", status, responses[status])
        connection = self._connection()
        connection.write_headers(answer, await self._headers(request_id, len(body)), body)
        exchange = access.Exchange(
            self._request, self._route, status, Trail(request_id), self._account, self._error, sent=len(body)
        )
        access.note(self._services, exchange)
        self._surplus = Surplus(self._cut_off)
        if "Expect" in headers:  # it has nothing on the way yet
            self.finish()

    def data_received(self, chunk: bytes) -> None:
        if self._surplus is not None and self._surplus.is_too_much(chunk):
            self._cut_off()

    def finish(self) -> None:
        self.on_connection_close()
        connection_of(self._request.server_connection).put_off()  # for whoever asks again at once
        self._connection().finish()

    def on_connection_close(self) -> None:
        if self._surplus is not None:
            self._surplus.end()

    async def _headers(self, request_id: str, length: int) -> HTTPHeaders:
        limit = self._services.settings.rate_limit(self._account.tier.name)
        verdict = await self._services.limiter.peek(self._account.counted_as, limit, RATE_WINDOW)
        return HTTPHeaders(
            {
                "Content-Type": "application/json",
                "Content-Length": str(length),
                "Date": date(int(time())),
                **common(request_id),
                **limits(verdict),
                **self._error.headers,
                **({"Connection": "close"} if self._services.traffic.stopping else {}),
            }
        )

    def _cut_off(self) -> None:
        self._connection().finish()

    def _connection(self) -> HTTPConnection:
        assert self._request.connection is not None
        return self._request.connection
