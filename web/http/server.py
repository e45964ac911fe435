"""The HTTP server: Tornado's server with connection limits, timeouts, and JSON responses to refused requests."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
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
from tornado.web import Application, RequestHandler

from web.api.errors import ApiError, RateLimited, RequestTimeout, malformed
from web.http.authorization import client_network, is_trusted
from web.http.responses import error_response
from web.http.timeouts import ConnectionTimeouts, ConnectionTimer, Timeout

log = logging.getLogger("convertd.server")

UNKNOWN_METHOD = "UNKNOWN"

_TORNADO_400 = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 "
_LINGER_SECONDS = 2
_BLOCK = 64 << 10  # bytes
_MAX_HEADERS = 16 << 10  # bytes
_MAX_URL = 4 << 10  # bytes
_MAX_CONNECTIONS = 512
_CROWDED = 384  # connections; with more, silent ones are closed sooner
MAX_CONNECTIONS_PER_CLIENT = 64
_MAX_HEALTH_CONNECTIONS = 32  # further connections, for health checks only
_MAX_HEALTH_CONNECTIONS_PER_CLIENT = 2
_HEALTH_PATHS = ("/healthz", "/readyz")
_BACKLOG = 128  # connections accepted in a row
_ACCEPT_PAUSE = 1  # seconds without accepting connections when resources are exhausted
_RETRY_AFTER = 5  # seconds
_UNLIMITED = 1 << 60  # handlers limit the size of bodies


class Connection(IOStream):
    """A client connection with timeouts. Replaces Tornado's 400 without a body by an error in the envelope.

    `receiving`: a request is incomplete. `responded`: it has a response. `rate_limit` is for the headers of errors.
    `linger` closes the socket of a client that may still be sending. `only_health`: requests other than health checks
    are refused.
    """

    def __init__(
        self,
        socket: socket.socket,
        client: str,
        timer: ConnectionTimer,
        rate_limit: int,
        linger: Callable[[socket.socket], None],
        *,
        only_health: bool,
    ) -> None:
        super().__init__(socket)
        self.client = client
        self.only_health = only_health
        self.timer = timer
        self.receiving = False
        self._rate_limit = rate_limit
        self._linger = linger
        self.responded = False

    def send_error(self, error: ApiError) -> None:
        """Sends the error, unless the request has a response already or the client has disconnected."""
        if self.closed() or self.responded:
            return
        self.responded = True
        super().write(error_response(error, self._rate_limit))
        if not self.writing():
            # If the socket were closed while the client is sending, the client might not receive the response.
            self._linger(self.socket.dup())

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        # Tornado writes this response directly to the stream: it can be recognized by its bytes only.
        if data == _TORNADO_400:
            self.send_error(malformed("The request is malformed."))
            return super().write(b"")
        self.responded |= bytes(data[: len(_CONTINUE)]) != _CONTINUE
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.send_error(malformed("The headers, or the header line of a chunk, are too long."))
        super().close(exc_info)

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        count = super().read_from_fd(buf)
        if count:
            self.timer.bytes_received()
        return count

    def write_to_fd(self, data: memoryview) -> int:
        count = super().write_to_fd(data)
        self.timer.bytes_sent()
        return count


def connection_of(server_connection: object) -> Connection:
    """The Connection of a request's `server_connection`."""
    return cast(Connection, cast(HTTP1ServerConnection, server_connection).stream)


class Server(HTTPServer):
    """Serves an application, with limits on connections in total and per client.

    `rate_limit` is for the headers of errors that no handler sends. `trusted` proxies have no limit of their own.
    """

    def initialize(  # type: ignore[override]
        self,
        application: Application,
        rate_limit: int,
        trusted: Collection[IPv4Network | IPv6Network] = (),
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),
    ) -> None:
        self._rate_limit = rate_limit
        self._trusted = trusted
        self._timeouts = timeouts
        self._clients: Counter[str] = Counter()  # connections by client, without those for health checks
        self._health_clients: Counter[str] = Counter()
        self._listeners: list[socket.socket] = []
        self._accept_failed = False
        self._open: set[Connection] = set()
        self._lingering: set[asyncio.Task[None]] = set()
        super().initialize(application, max_header_size=_MAX_HEADERS, max_body_size=_UNLIMITED)
        self.conn_params.header_timeout = None  # ConnectionTimer measures it
        shortest = min(timeouts.idle, timeouts.head, timeouts.window, timeouts.stall)
        self._check = PeriodicCallback(self._check_timeouts, min(1000, shortest * 1000 / 4))
        self._check.start()

    def listen_on(self, listeners: Iterable[socket.socket]) -> None:
        """Accepts connections on these sockets until `stop_listening`."""
        self._listeners += listeners
        for listener in self._listeners:
            self._resume(listener)

    def stop_listening(self) -> None:
        """Closes the sockets, and leaves connections open."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                accepted, address = listener.accept()
            except ConnectionAbortedError:
                continue
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors or no memory
                if not self._accept_failed:
                    log.error("no connections can be accepted: %s", error.strerror or error)
                self._accept_failed = True
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)  # it would stay readable
                loop.call_later(_ACCEPT_PAUSE, self._resume, listener)
                return
            self._accept_failed = False
            self._open_connection(accepted, address)

    def _open_connection(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        client = client_network(str(address[0]))
        clients, total, limit = self._clients, _MAX_CONNECTIONS, MAX_CONNECTIONS_PER_CLIENT
        if is_trusted(str(address[0]), self._trusted):
            limit = _MAX_CONNECTIONS
        if only_health := clients.total() >= total:
            clients, total = self._health_clients, _MAX_HEALTH_CONNECTIONS
            limit = _MAX_HEALTH_CONNECTIONS_PER_CLIENT
        if clients.total() >= total or clients[client] >= limit:
            self._reject(accepted)
            return
        clients[client] += 1
        timer = ConnectionTimer(self._timeouts)
        connection = Connection(accepted, client, timer, self._rate_limit, self._linger, only_health=only_health)
        self._open.add(connection)
        self.handle_stream(connection, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        connection = connection_of(server_conn)
        connection.responded, connection.receiving = False, True
        connection.timer.restart(Timeout.IDLE)
        return _TimedRequest(super().start_request(server_conn, request_conn), connection)

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        connection = connection_of(server_conn)
        self._open.discard(connection)
        clients = self._health_clients if connection.only_health else self._clients
        clients[connection.client] -= 1
        if not clients[connection.client]:
            del clients[connection.client]

    async def close_all_connections(self) -> None:
        self._check.stop()
        await super().close_all_connections()
        await asyncio.gather(*self._lingering, return_exceptions=True)

    def _reject(self, connection: socket.socket) -> None:
        """Sends an error without blocking, and closes the connection."""
        with suppress(OSError):
            connection.setblocking(False)
            connection.send(error_response(_too_many_connections(), self._rate_limit))
            connection.recv(_MAX_HEADERS)  # closing with unread data would reset the connection
        connection.close()

    def _linger(self, connection: socket.socket) -> None:
        task = asyncio.ensure_future(_drain_and_close(connection))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _check_timeouts(self) -> None:
        crowded = len(self._open) >= _CROWDED
        for connection in list(self._open):
            match connection.timer.exceeded(writing=connection.writing(), crowded=crowded):
                case None:
                    continue
                case Timeout.HEADERS:
                    connection.send_error(RequestTimeout("The headers of the request arrived too slowly."))
                case Timeout.BODY:
                    connection.send_error(RequestTimeout("The body of the request arrived too slowly."))
            connection.close()


@dataclass(eq=False)
class _TimedRequest(HTTPMessageDelegate):
    """Passes a request to the application and updates the connection's timer."""

    request: HTTPMessageDelegate
    connection: Connection
    started: bool = False

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        line = cast(RequestStartLine, start_line)
        if len(line.path) > _MAX_URL:
            self.connection.send_error(malformed(f"The URL is longer than {_MAX_URL} bytes."))
            raise HTTPInputError
        if self.connection.only_health and line.path not in _HEALTH_PATHS:
            self.connection.send_error(_too_many_connections())
            raise HTTPInputError
        if not line.path.startswith("/"):
            line = _origin_form(line)
        if line.method not in RequestHandler.SUPPORTED_METHODS:  # Tornado would refuse it without reading the body
            line = line._replace(method=UNKNOWN_METHOD)
        self.connection.timer.restart(Timeout.BODY)
        self.started = True
        with self.connection.timer.processing():
            prepared = self.request.headers_received(line, headers)
            if prepared is not None:
                await prepared

    async def data_received(self, chunk: bytes) -> None:
        with self.connection.timer.processing(len(chunk)):
            written = self.request.data_received(chunk)
            if written is not None:
                await written

    def finish(self) -> None:
        self.connection.receiving = False
        self.connection.timer.restart(Timeout.RESPONSE)
        self.request.finish()

    def on_connection_close(self) -> None:
        if self.started:
            self.request.on_connection_close()


def _too_many_connections() -> RateLimited:
    return RateLimited("Too many connections.", retry_after=_RETRY_AFTER, reason="too_many_connections")


def _origin_form(line: RequestStartLine) -> RequestStartLine:
    """The request line with an absolute URL reduced to its path: servers must accept the URLs that proxies receive."""
    if not line.path.lower().startswith(("http://", "https://")):
        return line
    try:
        parts = urlsplit(line.path)
    except ValueError:
        raise HTTPInputError from None
    query = f"?{parts.query}" if parts.query else ""
    return line._replace(path=(parts.path or "/") + query)


async def _drain_and_close(connection: socket.socket) -> None:
    """Ends the response, discards incoming data for at most 2 seconds, then closes the socket."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    try:
        connection.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_SECONDS):
            while await loop.sock_recv(connection, _BLOCK):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        connection.close()
