"""The HTTP server: Tornado's, with bounds on what connections may do, and an answer for all that it turns away."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Collection
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from typing import Any, cast
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.ioloop import PeriodicCallback
from tornado.iostream import IOStream
from tornado.web import Application

from web.answer_bytes import malformed, refusal
from web.connection import Connection, connection_of, drained
from web.errors import RateLimited, RequestTimeout
from web.patience import Overdue, Pace, Patience
from web.services.addresses import is_trusted, subscriber

_MAX_HEADERS = 16 << 10  # bytes
_MAX_TARGET = 4 << 10  # bytes of a URL
_MAX_CONNECTIONS = 512
_MAX_CONNECTIONS_OF_A_CLIENT = 64
_RETRY_AFTER = 5  # seconds
_UNLIMITED = 1 << 60  # handlers count the bytes of bodies, and say so in the envelope


class Server(HTTPServer):
    """Serves an application.

    `rate_limit` is what clients are told who cannot be understood. Connections of `trusted` proxies are those
    of many clients, and so are counted in all only.
    """

    def initialize(  # type: ignore[override]
        self,
        application: Application,
        rate_limit: int,
        trusted: Collection[IPv4Network | IPv6Network] = (),
        patience: Patience = Patience(),
    ) -> None:
        self._rate_limit = rate_limit
        self._trusted = trusted
        self._patience = patience
        self._clients: Counter[str] = Counter()
        self._open: set[Connection] = set()
        self._lingering: set[asyncio.Task[None]] = set()
        super().initialize(application, max_header_size=_MAX_HEADERS, max_body_size=_UNLIMITED)
        self.conn_params.header_timeout = None  # the look-out knows better what to wait for
        shortest = min(patience.idle, patience.head, patience.window, patience.stall)
        self._lookout = PeriodicCallback(self._look_out, min(1000, shortest * 1000 / 4))
        self._lookout.start()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        client = subscriber(str(address[0]))
        most = _MAX_CONNECTIONS if is_trusted(client, self._trusted) else _MAX_CONNECTIONS_OF_A_CLIENT
        if self._clients.total() >= _MAX_CONNECTIONS or self._clients[client] >= most:
            self._turn_away(stream.socket)
            return
        self._clients[client] += 1
        connection = Connection(stream.socket, client, Pace(self._patience), self._rate_limit, self._linger)
        self._open.add(connection)
        super().handle_stream(connection, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        connection = connection_of(server_conn)
        connection.await_request()
        return _Exchange(super().start_request(server_conn, request_conn), connection)

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        connection = connection_of(server_conn)
        self._open.discard(connection)
        client = connection.client
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]

    async def close_all_connections(self) -> None:
        self._lookout.stop()
        await super().close_all_connections()
        await asyncio.gather(*self._lingering, return_exceptions=True)

    def _turn_away(self, connection: socket.socket) -> None:
        """Says so if that takes no time, and closes."""
        error = RateLimited("Too many connections.", retry_after=_RETRY_AFTER, reason="too_many_connections")
        with suppress(OSError):
            connection.send(refusal(error, self._rate_limit))
            connection.recv(_MAX_HEADERS)  # to close on what was not read would take the answer back
        connection.close()

    def _linger(self, rest: socket.socket) -> None:
        task = asyncio.ensure_future(drained(rest))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _look_out(self) -> None:
        for connection in list(self._open):
            match connection.pace.overdue(writing=connection.writing()):
                case None:
                    continue
                case Overdue.HEAD:
                    connection.explain(RequestTimeout("The headers of the request came too slowly."))
                case Overdue.BODY:
                    connection.explain(RequestTimeout("The body of the request came too slowly."))
            connection.close()


class _Exchange(HTTPMessageDelegate):
    """A request on its way to the application, and how fast it comes."""

    def __init__(self, request: HTTPMessageDelegate, connection: Connection) -> None:
        self._request = request
        self._connection = connection
        self._begun = False

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        line = cast(RequestStartLine, start_line)
        if len(line.path) > _MAX_TARGET:
            self._connection.explain(malformed(f"The URL is longer than {_MAX_TARGET} bytes."))
            raise HTTPInputError
        self._connection.pace.await_body()
        self._begun = True
        with self._connection.pace.handling():
            await _done(self._request.headers_received(_in_origin_form(line), headers))

    async def data_received(self, chunk: bytes) -> None:
        with self._connection.pace.handling(len(chunk)):
            await _done(self._request.data_received(chunk))

    def finish(self) -> None:
        self._connection.receiving = False
        self._connection.pace.answer()
        self._request.finish()

    def on_connection_close(self) -> None:
        if self._begun:
            self._request.on_connection_close()


async def _done(work: Awaitable[None] | None) -> None:
    if work is not None:
        await work


def _in_origin_form(line: RequestStartLine) -> RequestStartLine:
    """The same with a path alone: servers have to take URLs as proxies are sent them."""
    if not line.path.lower().startswith(("http://", "https://")):
        return line
    try:
        parts = urlsplit(line.path)
    except ValueError:
        raise HTTPInputError from None
    query = f"?{parts.query}" if parts.query else ""
    return line._replace(path=(parts.path or "/") + query)
