"""Whole answers as bytes, to requests that never reach a handler."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from http.client import responses
from ipaddress import IPv4Network, IPv6Network
from typing import Any, cast
from urllib.parse import urlsplit

from tornado.http1connection import HTTP1ServerConnection
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
from tornado.iostream import IOStream, UnsatisfiableReadError
from tornado.web import Application

from config.pricing import RATE_WINDOW
from storage.ids import new_id
from storage.rate_limits import unused
from web.api.errors import STATUS, ApiError, InvalidParameter, RateLimited, RequestTimeout, envelope, error_headers
from web.api.headers import common_headers, rate_limit_headers
from web.http.timeouts import ConnectionTimeouts, ConnectionTimer, Timeout
from web.services.client_address import client_network, is_trusted

log = logging.getLogger("convertd.access")


def malformed(message: str) -> InvalidParameter:
    """The error of a request that is no proper HTTP."""
    return InvalidParameter(message, reason="malformed")


def error_response(error: ApiError, rate_limit: int) -> bytes:
    """A whole answer to a request that never reached a handler."""
    request_id, status = new_id("req"), STATUS[error.code]
    body = json.dumps(envelope(error, request_id)).encode()
    headers = {
        **common_headers(request_id),
        **rate_limit_headers(unused(rate_limit, RATE_WINDOW, time.time())),
        **error_headers(error),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    fields = {"status": status, "request_id": request_id, "code": error.code, "reason": error.reason}
    log.info("refused", extra={"fields": fields})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {responses[status]}\r\n{lines}\r\n".encode() + body


_BARE = b"HTTP/1.1 400 Bad Request\r\n\r\n"  # Tornado's word on what it cannot parse
_CONTINUE = b"HTTP/1.1 100 "
_LINGER_SECONDS = 2
_BLOCK = 64 << 10  # bytes


class Connection(IOStream):
    """A stream that keeps `pace`, and puts Tornado's bare refusals into words.

    `rate_limit` is what clients are told who cannot be understood; `linger` gets the socket of a client
    that may still be sending.
    """

    def __init__(
        self,
        socket: socket.socket,
        client: str,
        pace: ConnectionTimer,
        rate_limit: int,
        linger: Callable[[socket.socket], None],
    ) -> None:
        super().__init__(socket)
        self.client = client
        self.pace = pace
        self._rate_limit = rate_limit
        self._linger = linger
        self._answered = False
        self.receiving = False  # whether a request has begun to arrive and is incomplete
        super().set_nodelay(True)

    def await_request(self) -> None:
        """Another request may come."""
        self._answered = False
        self.receiving = True
        self.pace.await_request()

    def explain(self, error: ApiError) -> None:
        """Answers with the error, if the request has no answer yet and the client is there."""
        if self.closed() or self._answered:
            return
        self._answered = True
        super().write(error_response(error, self._rate_limit))
        if not self.writing():
            # To close on a client that is sending could cost it the answer.
            self._linger(self.socket.dup())

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        if data == _BARE:
            self.explain(malformed("The request is malformed."))
            return super().write(b"")
        self._answered |= bytes(data[: len(_CONTINUE)]) != _CONTINUE
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.explain(malformed("The headers, or the line that begins a chunk, are too long."))
        super().close(exc_info)

    def set_nodelay(self, value: bool) -> None:
        """Leaves it as it is, on. Tornado would turn it on and off again with every answer."""

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        count = super().read_from_fd(buf)
        if count:
            self.pace.arrived()
        return count

    def write_to_fd(self, data: memoryview) -> int:
        count = super().write_to_fd(data)
        self.pace.taken()
        return count


def connection_of(server_connection: object) -> Connection:
    """The connection of a request's `server_connection`, as Tornado calls the one that goes on after it."""
    return cast(Connection, cast(HTTP1ServerConnection, server_connection).stream)


async def drain_and_close(rest: socket.socket) -> None:
    """Ends an answer, reads what still comes for a moment, then closes."""
    loop = asyncio.get_running_loop()
    rest.setblocking(False)
    try:
        rest.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_SECONDS):
            while await loop.sock_recv(rest, _BLOCK):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        rest.close()


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
        patience: ConnectionTimeouts = ConnectionTimeouts(),
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
        client = client_network(str(address[0]))
        most = _MAX_CONNECTIONS if is_trusted(client, self._trusted) else _MAX_CONNECTIONS_OF_A_CLIENT
        if self._clients.total() >= _MAX_CONNECTIONS or self._clients[client] >= most:
            self._turn_away(stream.socket)
            return
        self._clients[client] += 1
        connection = Connection(stream.socket, client, ConnectionTimer(self._patience), self._rate_limit, self._linger)
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
            connection.send(error_response(error, self._rate_limit))
            connection.recv(_MAX_HEADERS)  # to close on what was not read would take the answer back
        connection.close()

    def _linger(self, rest: socket.socket) -> None:
        task = asyncio.ensure_future(drain_and_close(rest))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _look_out(self) -> None:
        for connection in list(self._open):
            match connection.pace.overdue(writing=connection.writing()):
                case None:
                    continue
                case Timeout.HEAD:
                    connection.explain(RequestTimeout("The headers of the request came too slowly."))
                case Timeout.BODY:
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
