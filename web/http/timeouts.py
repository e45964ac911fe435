"""Timeouts of a client connection: idle, headers, and the rates of bodies and responses."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto


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
