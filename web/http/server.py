"""The HTTP server: Tornado's server with connection limits, timeouts, and JSON responses to refused requests."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
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
from tornado.web import Application, RequestHandler

from web.api.errors import RequestTimeout, malformed
from web.http.authorization import client_address, client_network, is_trusted
from web.http.connections import (
    Connection,
    Connections,
    ConnectionTimeouts,
    ConnectionTimer,
    Timeout,
    Value,
    connection_of,
    too_many_connections,
)
from web.http.responses import error_response
from web.services.operation.processes import SharedUsage

log = logging.getLogger("convertd.server")

UNKNOWN_METHOD = "UNKNOWN"

_LINGER_SECONDS = 2
_MAX_LINGERING = 512  # further sockets are closed at once
_BLOCK = 64 << 10  # bytes
_MAX_HEADERS = 16 << 10  # bytes
_MAX_URL = 4 << 10  # bytes
_MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_CLIENT = 64
_CROWDED = 384  # connections; with more, slow ones are closed sooner
_MAX_HEALTH_CONNECTIONS = 32  # further connections, for health checks only
_MAX_HEALTH_CONNECTIONS_PER_CLIENT = 2
_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_BACKLOG = 128  # connections accepted in a row
_TURN_OF_OTHERS = 0.005  # seconds in which other processes can accept a connection
_ACCEPT_PAUSE = 1  # seconds without accepting connections when resources are exhausted
_UNLIMITED = 1 << 60  # handlers limit the size of bodies


class Server(HTTPServer):
    """Serves an application, with limits on connections in total and per client.

    `rate_limit` is for the headers of errors that no handler sends. `trusted` proxies have no limit of their own. If
    several processes listen on the same sockets, `usage` lets each have its share of the connections. Paths may
    begin with the `base_path`: some proxies pass it on, others remove it.
    """

    def initialize(  # type: ignore[override]
        self,
        application: Application,
        rate_limit: int,
        trusted: Collection[IPv4Network | IPv6Network] = (),
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),
        usage: SharedUsage | None = None,
        base_path: str = "",
    ) -> None:
        self._usage = usage
        self._base_path = base_path
        self._rate_limit = rate_limit
        self._trusted = trusted
        self._timeouts = timeouts
        self._clients = Connections(_MAX_CONNECTIONS, MAX_CONNECTIONS_PER_CLIENT)
        self._health_checks = Connections(_MAX_HEALTH_CONNECTIONS, _MAX_HEALTH_CONNECTIONS_PER_CLIENT)
        self._listeners: list[socket.socket] = []
        self._left_to_others: set[socket.socket] = set()
        self._accept_failed = False
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
        for number in range(_BACKLOG):
            waited = number == 0 and listener in self._left_to_others
            if self._usage is not None and self._usage.is_above_mean and not waited:
                self._left_to_others.add(listener)
                self._pause(listener, _TURN_OF_OTHERS)
                return
            self._left_to_others.discard(listener)
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
                self._pause(listener, _ACCEPT_PAUSE)
                return
            self._accept_failed = False
            self._open_connection(accepted, address)

    def _pause(self, listener: socket.socket, seconds: float) -> None:
        """Accepts no connections for a time."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)  # it would stay readable
        loop.call_later(seconds, self._resume, listener)

    def _open_connection(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        peer = str(address[0])
        client = client_network(peer)
        is_proxy = is_trusted(peer, self._trusted)
        connections = self._clients
        count = 0 if is_proxy else connections.by_client[client]
        if connections.is_full and count < connections.per_client:
            other = connections.least_valuable(count)
            if other is not None:
                self._give_up(other)
        only_health = connections.is_full
        if only_health:
            connections = self._health_checks
            count = connections.by_client[client]
        if connections.is_full or count >= connections.per_client:
            self._reject(accepted)
            return
        connection = Connection(
            accepted,
            peer,
            client,
            ConnectionTimer(self._timeouts),
            self._rate_limit,
            self._linger,
            is_proxy=is_proxy,
            only_health=only_health,
        )
        connections.add(connection)
        self._publish_usage()
        self.handle_stream(connection, address)

    def _publish_usage(self) -> None:
        if self._usage is not None:
            self._usage.publish(len(self._clients.open))

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        connection = connection_of(server_conn)
        connection.begin_request()
        if connection.is_proxy:
            self._clients.reassign(connection, client_network(connection.peer))
        return _TimedRequest(
            super().start_request(server_conn, request_conn), connection, self._assign_client, self._base_path
        )

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        connection = connection_of(server_conn)
        (self._health_checks if connection.only_health else self._clients).remove(connection)
        self._publish_usage()

    async def close_all_connections(self) -> None:
        self._check.stop()
        await super().close_all_connections()
        await asyncio.gather(*self._lingering, return_exceptions=True)

    def _reject(self, connection: socket.socket) -> None:
        """Sends an error without blocking, and closes the connection."""
        with suppress(OSError):
            connection.setblocking(False)
            connection.send(error_response(too_many_connections(), self._rate_limit))
            connection.recv(_MAX_HEADERS)  # closing with unread data would reset the connection
        connection.close()

    def _linger(self, connection: socket.socket) -> None:
        if len(self._lingering) >= _MAX_LINGERING:
            connection.close()
            return
        task = asyncio.ensure_future(_drain_and_close(connection))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _assign_client(self, connection: Connection, headers: HTTPHeaders) -> None:
        """Counts the connection of a proxy for the client whose request it sends."""
        address = client_address(connection.peer, headers.get("X-Forwarded-For"), self._trusted)
        self._clients.reassign(connection, client_network(address))

    def _give_up(self, connection: Connection) -> None:
        self._clients.remove(connection)
        connection.give_up(too_many_connections())

    def _check_timeouts(self) -> None:
        crowded = len(self._clients.open) >= _CROWDED
        for connection in (*self._clients.open, *self._health_checks.open):
            if crowded and connection.value in (Value.REFUSED_BODY, Value.ANONYMOUS_BODY):
                self._give_up(connection)
                continue
            dispensable = crowded and connection.value is not None
            match connection.timer.exceeded(writing=connection.writing(), crowded=dispensable):
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
    assign_client: Callable[[Connection, HTTPHeaders], None]
    base_path: str
    started: bool = False

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        line = cast(RequestStartLine, start_line)
        if self.connection.is_proxy:
            self.assign_client(self.connection, headers)
        if len(line.path) > _MAX_URL:
            self.connection.send_error(malformed(f"The URL is longer than {_MAX_URL} bytes."))
            raise HTTPInputError
        if not line.path.startswith("/"):
            line = _origin_form(line)
        if self.base_path:
            line = line._replace(path=_below(line.path, self.base_path))
        if self.connection.only_health and line.path not in _HEALTH_PATHS:
            self.connection.send_error(too_many_connections())
            raise HTTPInputError
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


def _below(path: str, base: str) -> str:
    """The path of a request without the base path, if it begins with it."""
    rest = path.removeprefix(base)
    if rest == path or rest[:1] not in ("", "/", "?"):
        return path
    return rest if rest.startswith("/") else f"/{rest}"


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
