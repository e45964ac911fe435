"""Connections of clients: timeouts, errors outside of requests, and which of them to close when there are many."""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any, cast

from tornado.http1connection import HTTP1ServerConnection
from tornado.iostream import IOStream, UnsatisfiableReadError

from web.api.errors import ApiError, RateLimited, malformed
from web.http.responses import error_response
from web.http.timeouts import ConnectionTimer, Timeout
from web.services.files.work_files import too_many_uploads

_TORNADO_400 = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 "
_RETRY_AFTER = 5  # seconds


class Value(IntEnum):
    """The priority of a connection that waits for its client, lowest first: the lowest is closed first."""

    REFUSED_BODY = auto()  # the request has its response
    ANONYMOUS_BODY = auto()  # the request has no account
    IDLE = auto()
    HEADERS = auto()
    BODY = auto()
    RESPONSE = auto()


class Connection(IOStream):
    """A client connection with timeouts. Replaces Tornado's 400 without a body by an error in the envelope.

    `peer` is the address of the other end, `is_proxy` whether that is a trusted proxy, and `client` the network that
    the connection counts for. `receiving`: a request is incomplete. `responded`: it has a response. `has_account`: its
    sender has an account. `rate_limit` is for the headers of errors. `linger` closes the socket of a client that may
    still be sending. `only_health`: requests other than health checks are refused.
    """

    def __init__(
        self,
        socket: socket.socket,
        peer: str,
        client: str,
        timer: ConnectionTimer,
        rate_limit: int,
        linger: Callable[[socket.socket], None],
        *,
        is_proxy: bool,
        only_health: bool,
    ) -> None:
        super().__init__(socket)
        self.peer = peer
        self.client = client
        self.is_proxy = is_proxy
        self.only_health = only_health
        self.timer = timer
        self.receiving = False
        self.responded = False
        self.has_account = False
        self._rate_limit = rate_limit
        self._linger = linger

    @property
    def value(self) -> Value | None:
        """The priority of the connection; None if it does not wait for its client, or if that is an idle proxy."""
        state = self.timer.state
        if not self.timer.waits_for_client(writing=self.writing()) or (state is Timeout.IDLE and self.is_proxy):
            return None
        if state is Timeout.BODY and self.responded:
            return Value.REFUSED_BODY
        if state is Timeout.BODY and not self.has_account:
            return Value.ANONYMOUS_BODY
        return Value[state.name]

    def begin_request(self) -> None:
        """A request is expected."""
        self.receiving = True
        self.responded = False
        self.has_account = False
        self.timer.restart(Timeout.IDLE)

    def send_error(self, error: ApiError) -> None:
        """Sends the error, unless the request has a response already or the client has disconnected."""
        if self.closed() or self.responded:
            return
        self.responded = True
        super().write(error_response(error, self._rate_limit))
        self._close_later()

    def give_up(self, error: ApiError) -> None:
        """Closes the connection for the sake of other clients. A request that has no response gets the error."""
        if self.timer.state in (Timeout.HEADERS, Timeout.BODY):
            if self.responded:
                self._close_later()
            self.send_error(error)
        self.close()

    def give_up_if_slow(self) -> bool:
        """Closes the connection if its client takes long to send a body or to read a response. Returns whether it does.

        A request that has no response gets the error of a request for whose files there is no space.
        """
        is_slow = self.value in (Value.BODY, Value.ANONYMOUS_BODY, Value.RESPONSE) and self.timer.waits_long
        if is_slow:
            self.give_up(too_many_uploads())
        return is_slow

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
        self.timer.bytes_sent(count)
        return count

    def _close_later(self) -> None:
        """If the socket were closed while the client is sending, the client might not receive the response."""
        if not self.writing():
            self._linger(self.socket.dup())


class Connections:
    """The `open` connections, and how many each client has; at most `total`, and `per_client` of one client."""

    def __init__(self, total: int, per_client: int) -> None:
        self.total = total
        self.per_client = per_client
        self.open: set[Connection] = set()
        self.by_client: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return len(self.open) >= self.total

    def add(self, connection: Connection) -> None:
        """Adds a connection."""
        self.open.add(connection)
        self.by_client[connection.client] += 1

    def remove(self, connection: Connection) -> None:
        """Removes a connection, if it is not removed yet."""
        if connection in self.open:
            self.open.remove(connection)
            self.by_client -= {connection.client: 1}

    def reassign(self, connection: Connection, client: str) -> None:
        """Counts a connection for another client."""
        if connection in self.open and connection.client != client:
            self.remove(connection)
            connection.client = client
            self.add(connection)

    def least_valuable(self, count: int) -> Connection | None:
        """The connection to close for a client that has `count` connections; None if no client has many more.

        A client without connections may take the place of any. Another may not take the place of a client that would
        then have fewer than itself: clients that connect again and again would take the places of each other.

        It is of the client with most connections, of these one of the lowest value, and of these the longest silent.
        """
        most = count + 1 if count else 0
        candidates = [
            (-self.by_client[connection.client], value, connection.timer.active_at, connection)
            for connection in self.open
            if self.by_client[connection.client] > most and (value := connection.value) is not None
        ]
        return min(candidates, key=lambda candidate: candidate[:3])[-1] if candidates else None


def connection_of(server_connection: object) -> Connection:
    """The Connection of a request's `server_connection`."""
    return cast(Connection, cast(HTTP1ServerConnection, server_connection).stream)


def too_many_connections() -> RateLimited:
    """The error of a request for which the server has no connection."""
    return RateLimited("Too many connections.", retry_after=_RETRY_AFTER, reason="too_many_connections")
