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


class Expected:
    """Somebody who is about to ask for a turn."""

    def __init__(self, line: Line, account_id: str, limit: int) -> None:
        self._line: Line | None = line
        self._account_id = account_id
        line.expect(account_id, limit)

    def end(self) -> None:
        """They have come, or never will."""
        if self._line is not None:
            self._line.expect_no_more(self._account_id)
            self._line = None


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

    def expect(self, account_id: str, limit: int) -> Expected:
        """Says that somebody is about to ask for a turn, before more is done for the request than need be.

        Raises what `taken` would raise, in a long line if all had come who are expected.
        """
        self._check(account_id, limit, PATIENCE, behind_expected=True)
        return Expected(self._line, account_id, limit)

    def _check(self, account_id: str, limit: int, patience: float, *, behind_expected: bool) -> None:
        if self._closed:
            raise self._stopping()
        rounds = self._line.rounds(account_id, limit)
        # Before the line is half as long as it may be, whoever is expected could well come when it is gone.
        if behind_expected and self._is_too_long(2 * rounds, patience):
            rounds = self._line.rounds(account_id, limit, behind_expected=True)
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
        expected: Expected | None = None,
    ) -> AsyncIterator[None]:
        """A turn of an account that may have `limit` at a time, for a job of `memory` bytes.

        From now on whoever was expected is there, or refused. Raises RateLimited, reason `queue_full`, where it cannot
        begin within `patience` seconds; None waits for as long as it takes, and is never refused for what is ahead.
        Raises NotReady after `close`.
        """
        if expected is not None:
            expected.end()
        if self._closed:
            raise self._stopping()
        if patience is not None:
            self._check(account_id, limit, patience, behind_expected=False)
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
