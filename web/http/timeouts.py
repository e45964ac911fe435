"""Timeouts of a client connection: idle, headers, body rate, and a stalled response."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True)
class ConnectionTimeouts:
    """Timeouts in seconds. Bodies must arrive at `rate` bytes per second on average over `window` seconds.

    At the default rate, 100 MB may take 105 minutes. A client that is slower during a window is disconnected.
    """

    idle: float = 60.0  # the pause after a request
    head: float = 20.0  # the time in which the headers of a request arrive
    window: float = 20.0
    rate: int = 16_000
    stall: float = 60.0  # the longest time in which the client reads nothing of a response
    crowded: float = 3.0  # replaces `idle` and `head` while the server has almost as many connections as it may


class Timeout(Enum):
    """The timeout that a client exceeded."""

    IDLE = auto()
    HEADERS = auto()
    BODY = auto()
    RESPONSE = auto()


class ConnectionTimer:
    """Measures one connection against the timeouts. Processing time of the server is not counted."""

    def __init__(self, timeouts: ConnectionTimeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self.restart(Timeout.IDLE)

    def restart(self, timeout: Timeout) -> None:
        """Starts to measure the timeout that applies from now on."""
        self._state = timeout
        self._since = self._clock()
        self._waited = 0.0
        self._received = 0
        self._processing = False

    def bytes_received(self) -> None:
        """Bytes have arrived."""
        if self._state is Timeout.IDLE:
            self.restart(Timeout.HEADERS)

    def bytes_sent(self) -> None:
        """The client has read a part of the response."""
        if self._state is Timeout.RESPONSE:
            self._since = self._clock()

    @contextmanager
    def processing(self, body: int = 0) -> Iterator[None]:
        """Stops the clock while the server processes `body` bytes of the request body."""
        self._waited += self._clock() - self._since
        self._received += body
        self._processing = True
        try:
            yield
        finally:
            self._processing = False
            self._since = self._clock()

    def exceeded(self, *, writing: bool, crowded: bool = False) -> Timeout | None:
        """The exceeded timeout, if any. `writing`: a response is being sent. Must be called regularly.

        `crowded`: the server has almost as many connections as it may.
        """
        if self._processing or (self._state is Timeout.RESPONSE and not writing):
            self._since = self._clock()
            return None
        waited = self._waited + self._clock() - self._since
        if waited < self._limit(crowded):
            return None
        if self._state is Timeout.BODY and self._received >= self._timeouts.rate * waited:
            self.restart(Timeout.BODY)
            return None
        return self._state

    def _limit(self, crowded: bool) -> float:
        timeouts = self._timeouts
        if crowded and self._state in (Timeout.IDLE, Timeout.HEADERS):
            return timeouts.crowded
        return {
            Timeout.IDLE: timeouts.idle,
            Timeout.HEADERS: timeouts.head,
            Timeout.BODY: timeouts.window,
            Timeout.RESPONSE: timeouts.stall,
        }[self._state]
