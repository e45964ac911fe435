"""How long a connection may take over what it does, whatever it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True)
class ConnectionTimeouts:
    """What is waited for, in seconds. Bodies must come at `rate` bytes a second, averaged over `window`.

    At that rate 100 MB take two hours, and a request that sends a byte now and then ends within the window.
    """

    idle: float = 60.0  # between requests
    head: float = 20.0  # from the first byte of a request to the end of its headers
    window: float = 20.0
    rate: int = 16_000
    stall: float = 60.0  # while nothing of an answer is taken


class Timeout(Enum):
    """What a client has failed to do in time."""

    REQUEST = auto()
    HEAD = auto()
    BODY = auto()
    READING = auto()


class ConnectionTimer:
    """How one connection keeps up. Time that the server takes is not the client's."""

    def __init__(self, patience: ConnectionTimeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self.await_request()

    def await_request(self) -> None:
        """The next thing to come is a request."""
        self._enter(Timeout.REQUEST)

    def arrived(self) -> None:
        """Bytes have come."""
        if self._awaited is Timeout.REQUEST:
            self._enter(Timeout.HEAD)

    def await_body(self) -> None:
        """The headers are complete."""
        self._enter(Timeout.BODY)

    def answer(self) -> None:
        """The request is complete."""
        self._enter(Timeout.READING)

    def taken(self) -> None:
        """The client has taken something of the answer."""
        if self._awaited is Timeout.READING:
            self._since = self._clock()

    @contextmanager
    def handling(self, body: int = 0) -> Iterator[None]:
        """So many bytes of the body have come, and the server is at them."""
        self._waited += self._clock() - self._since
        self._received += body
        self._handling = True
        try:
            yield
        finally:
            self._handling = False
            self._since = self._clock()

    def overdue(self, *, writing: bool) -> Timeout | None:
        """What the client is late with. To be asked often: it judges the rate, too."""
        if self._handling or (self._awaited is Timeout.READING and not writing):
            self._since = self._clock()
            return None
        waited = self._waited + self._clock() - self._since
        if waited < self._allowed():
            return None
        if self._awaited is Timeout.BODY and self._received >= self._patience.rate * waited:
            self._enter(Timeout.BODY)
            return None
        return self._awaited

    def _allowed(self) -> float:
        patience = self._patience
        return {
            Timeout.REQUEST: patience.idle,
            Timeout.HEAD: patience.head,
            Timeout.BODY: patience.window,
            Timeout.READING: patience.stall,
        }[self._awaited]

    def _enter(self, awaited: Timeout) -> None:
        self._awaited = awaited
        self._since = self._clock()
        self._waited = 0.0
        self._received = 0
        self._handling = False
