"""Who converts when: the next in line, for as long as it has patience and there is hope."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import ceil, inf
from time import monotonic

from web.errors import NotReady, RateLimited
from web.services.line import Line, Place

PATIENCE = 30.0  # seconds
_HOPE = 0.5  # of its patience that one may expect to wait: what is expected is a mean
_WEIGHT = 0.2  # of the latest job in the mean duration
_MAX_RETRY_AFTER = 30  # seconds


class Turns:
    """At most `slots` turns at a time, in `memory` bytes together, in the order of a Line.

    Whoever would wait longer than `rounds` jobs take one after the other is refused at once, and so is whoever
    would likely wait in vain.
    """

    def __init__(self, slots: int, *, memory: float = inf, rounds: int = 50) -> None:
        self._line = Line(slots, memory)
        self._rounds = rounds
        self._called: dict[Place, asyncio.Future[None]] = {}
        self._mean_seconds: float | None = None
        self._closed = False
        self.refused: Counter[str] = Counter()  # by why: full, late, stopping

    @property
    def running(self) -> int:
        """How many have a turn."""
        return self._line.running

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._line.waiting

    @property
    def oldest_wait(self) -> float:
        """How long the one has waited that has waited longest, in seconds."""
        oldest = self._line.oldest()
        return 0.0 if oldest is None else monotonic() - oldest

    def check(self, account_id: str, limit: int, patience: float = PATIENCE) -> None:
        """Raises what `taken` would raise at once for a new job of the account. Changes nothing but the counts."""
        if self._closed:
            raise self._stopping()
        rounds = self._line.rounds(account_id, limit)
        if self.waiting and self._is_too_long(rounds, patience):
            raise self._full("full", self._lasting(rounds), "Too many conversions are waiting.")

    def _is_too_long(self, rounds: float, patience: float) -> bool:
        return rounds > self._rounds or self._lasting(rounds) > patience * _HOPE

    @asynccontextmanager
    async def taken(
        self,
        account_id: str,
        limit: int,
        *,
        memory: int = 0,
        patience: float | None = PATIENCE,
    ) -> AsyncIterator[None]:
        """A turn of an account that may have `limit` at a time, for a job of `memory` bytes.

        Raises RateLimited, reason `queue_full`, where it cannot begin within `patience` seconds; None waits for as long
        as it takes, and is never refused for what is ahead. Raises NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        if patience is not None:
            self.check(account_id, limit, patience)
        place = Place(account_id, memory, monotonic())
        called = self._called[place] = asyncio.get_running_loop().create_future()
        self._line.enter(place, limit)
        try:
            self._call()
            if place.begun is None:
                await self._wait(place, limit, called, patience)
            yield
        finally:
            del self._called[place]
            self._line.leave(place)
            if place.begun is not None:
                self._learn(monotonic() - place.begun)
            self._call()

    def close(self) -> None:
        """Refuses all who wait, and whoever comes; those that run go on."""
        self._closed = True
        for called in self._called.values():
            _wake(called)

    async def _wait(self, place: Place, limit: int, called: asyncio.Future[None], patience: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await called
        if place.begun is not None:
            return
        if self._closed:
            raise self._stopping()
        seconds = self._lasting(self._line.rounds(place.account_id, limit))
        raise self._full("late", seconds, f"The conversion could not start within {patience:g} s.")

    def _call(self) -> None:
        if not self._closed:
            for place in self._line.call(monotonic()):
                _wake(self._called[place])

    def _learn(self, seconds: float) -> None:
        mean = seconds if self._mean_seconds is None else self._mean_seconds
        self._mean_seconds = mean + (seconds - mean) * _WEIGHT

    def _lasting(self, rounds: float) -> float:
        return rounds * (self._mean_seconds or 0.0)

    def _full(self, why: str, seconds: float, message: str) -> RateLimited:
        self.refused[why] += 1
        retry_after = min(max(ceil(seconds), 1), _MAX_RETRY_AFTER)
        return RateLimited(message, retry_after=retry_after, reason="queue_full")

    def _stopping(self) -> NotReady:
        self.refused["stopping"] += 1
        return NotReady("The server is stopping.", headers={"Retry-After": "1"})


def _wake(called: asyncio.Future[None]) -> None:
    if not called.done():  # as it is where the one that waits was cancelled and has yet to leave
        called.set_result(None)
