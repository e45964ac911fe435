"""Connections of clients: timeouts, errors outside of requests, and which of them to close when there are many."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, cast

from tornado.http1connection import HTTP1ServerConnection
from tornado.iostream import IOStream, UnsatisfiableReadError

from web.api.errors import ApiError, RateLimited, malformed
from web.http.responses import error_response
from web.services.files.work_files import too_many_uploads

_TORNADO_400 = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 "
_RETRY_AFTER = 5  # seconds


@dataclass(frozen=True)
class ConnectionTimeouts:
    """Timeouts in seconds, and rates in bytes per second. The defaults are for production.

    A body or a response must be transferred at `rate` on average over every window, and at `average` from its beginning
    to the end of every window after the first `grace` seconds. At the default average, 100 MB may take 52 minutes.
    """

    idle: float = 60.0  # the pause after a request
    head: float = 20.0  # the time in which the headers of a request arrive
    window: float = 20.0  # the time over which the rate of a body is measured
    stall: float = 60.0  # the window of a response: the kernel accepts large amounts at long intervals
    rate: int = 16_000
    average: int = 32_000
    grace: float = 60.0
    crowded: float = 3.0  # replaces `idle`, `head` and `window` if the server has almost as many connections as it may


class Timeout(Enum):
    """States in which the server waits for the client, each with a timeout."""

    IDLE = auto()
    HEADERS = auto()
    BODY = auto()
    RESPONSE = auto()


class ConnectionTimer:
    """Measures one connection against the timeouts. Processing time of the server is not counted.

    `state` is the timeout that applies; `active_at` is when the client last sent or read something.
    """

    def __init__(self, timeouts: ConnectionTimeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self.restart(Timeout.IDLE)

    def restart(self, timeout: Timeout) -> None:
        """Starts to measure the timeout that applies from now on."""
        self.state = timeout
        self.active_at = self._since = self._clock()
        self._waited = self._earlier_waited = 0.0  # seconds, in this window and in earlier ones
        self._bytes = self._earlier_bytes = 0
        self._processing = False

    def bytes_received(self) -> None:
        """Bytes have arrived."""
        self.active_at = self._clock()
        if self.state is Timeout.IDLE:
            self.restart(Timeout.HEADERS)

    def bytes_sent(self, count: int) -> None:
        """The client, or the kernel for it, has accepted bytes of the response."""
        if self.state is Timeout.RESPONSE:
            self.active_at = self._clock()
            self._bytes += count

    @contextmanager
    def processing(self, body: int = 0) -> Iterator[None]:
        """Stops the clock while the server processes `body` bytes of the request body."""
        self._advance()
        self._bytes += body
        self._processing = True
        try:
            yield
        finally:
            self._processing = False
            self._since = self._clock()

    def waits_for_client(self, *, writing: bool) -> bool:
        """Whether the client has to act. `writing`: a response is being sent."""
        return not self._processing and (self.state is not Timeout.RESPONSE or writing)

    @property
    def waits_long(self) -> bool:
        """Whether the body or the response takes its client longer than the window of a body."""
        waited = self._earlier_waited + self._waited + self._clock() - self._since
        return waited >= self._timeouts.window

    def exceeded(self, *, writing: bool, crowded: bool = False) -> Timeout | None:
        """The exceeded timeout, if any. `writing`: a response is being sent. Must be called regularly.

        `crowded`: the server has almost as many connections as it may.
        """
        if not self.waits_for_client(writing=writing):
            self._since = self._clock()
            return None
        self._advance()
        if self._waited < self._limit(crowded):
            return None
        if self.state in (Timeout.IDLE, Timeout.HEADERS) or self._is_slow():
            return self.state
        self._earlier_waited += self._waited
        self._earlier_bytes += self._bytes
        self._waited = 0.0
        self._bytes = 0
        return None

    def _advance(self) -> None:
        now = self._clock()
        self._waited += now - self._since
        self._since = now

    def _is_slow(self) -> bool:
        timeouts = self._timeouts
        waited = self._earlier_waited + self._waited
        is_slow_on_average = self._earlier_bytes + self._bytes < timeouts.average * waited
        return self._bytes < timeouts.rate * self._waited or (waited >= timeouts.grace and is_slow_on_average)

    def _limit(self, crowded: bool) -> float:
        timeouts = self._timeouts
        limits = {Timeout.IDLE: timeouts.idle, Timeout.HEADERS: timeouts.head, Timeout.BODY: timeouts.window}
        limit = limits.get(self.state, timeouts.stall)
        return min(limit, timeouts.crowded) if crowded and self.state in limits else limit


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
