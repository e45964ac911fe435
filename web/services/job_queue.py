"""Who is next: accounts take turns, each sends its own in the order they came, and memory must suffice."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from time import monotonic

from engine.decode_limits import MAX_PIXELS
from engine.memory_estimate import needed_bytes
from engine.planner import Plan
from web.api.errors import NotReady, RateLimited


@dataclass(eq=False)
class QueuedJob:
    """One that waits, and runs once it has `begun`. `memory` is in bytes, times in seconds of one clock."""

    account_id: str
    memory: int
    since: float
    begun: float | None = None


@dataclass
class _Account:
    limit: int
    running: int = 0
    waiting: dict[QueuedJob, None] = field(default_factory=dict)  # an ordered set


class FairQueue:
    """At most `slots` places run at a time, in `memory` bytes together.

    Accounts stand in the order of their latest turns. The next place is the first of the account that stands foremost
    of those which have somebody waiting and run fewer than they may. If it does not fit in the memory that is left,
    all wait with it: nobody small passes somebody large. A place larger than all memory runs alone.
    """

    def __init__(self, slots: int, memory: float) -> None:
        self.running = 0
        self.waiting = 0
        self._slots = slots
        self._memory = memory
        self._taken = 0  # bytes
        self._accounts: dict[str, _Account] = {}  # those with a place; a turn moves one to the end

    def enter(self, place: QueuedJob, limit: int) -> None:
        """Waits behind the others of its account, which may have `limit` places running."""
        account = self._accounts.setdefault(place.account_id, _Account(limit))
        account.limit = limit
        account.waiting[place] = None
        self.waiting += 1

    def leave(self, place: QueuedJob) -> None:
        """Waits or runs no more."""
        account = self._accounts[place.account_id]
        if place.begun is None:
            del account.waiting[place]
            self.waiting -= 1
        else:
            account.running -= 1
            self.running -= 1
            self._taken -= place.memory
        if not (account.running or account.waiting):
            del self._accounts[place.account_id]

    def call(self, now: float) -> list[QueuedJob]:
        """Lets all run that may, and gives them."""
        called = []
        while (place := self._next()) is not None:
            account = self._accounts[place.account_id] = self._accounts.pop(place.account_id)
            del account.waiting[place]
            account.running += 1
            self.waiting -= 1
            self.running += 1
            self._taken += place.memory
            place.begun = now
            called.append(place)
        return called

    def rounds(self, account_id: str, limit: int) -> float:
        """How many jobs one after the other it takes until a newcomer of this account has its turn."""
        ahead = {name: len(account.waiting) for name, account in self._accounts.items()}
        own = 1 + ahead.pop(account_id, 0)
        # While the account takes that many turns, each of the others takes no more.
        all_told = own + sum(min(others, own) for others in ahead.values())
        return max(all_told / self._slots, own / limit)

    def oldest(self) -> float | None:
        """Since when the one has waited that has waited longest."""
        firsts = (next(iter(account.waiting)) for account in self._accounts.values() if account.waiting)
        return min((place.since for place in firsts), default=None)

    def _next(self) -> QueuedJob | None:
        if self.running == self._slots:
            return None
        for account in self._accounts.values():
            if account.waiting and account.running < account.limit:
                place = next(iter(account.waiting))
                return place if self._fits(place) else None
        return None

    def _fits(self, place: QueuedJob) -> bool:
        return not self.running or self._taken + place.memory <= self._memory


QUEUE_TIMEOUT = 30.0  # seconds
_MAX_WAIT_SHARE = 0.5  # of its patience that one may expect to wait: what is expected is a mean
_WEIGHT = 0.2  # of the latest job in the mean duration
_MAX_RETRY_AFTER = 30  # seconds


class JobQueue:
    """At most `slots` turns at a time, in `memory` bytes together, in the order of a Line.

    Whoever would wait longer than `rounds` jobs take one after the other is refused at once, and so is whoever
    would likely wait in vain.
    """

    def __init__(self, slots: int, *, memory: float = inf, rounds: int = 50) -> None:
        self._line = FairQueue(slots, memory)
        self._rounds = rounds
        self._called: dict[QueuedJob, asyncio.Future[None]] = {}
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

    def check(self, account_id: str, limit: int, patience: float = QUEUE_TIMEOUT) -> None:
        """Raises what `taken` would raise at once for a new job of the account. Changes nothing but the counts."""
        if self._closed:
            raise self._stopping()
        rounds = self._line.rounds(account_id, limit)
        if self.waiting and self._is_too_long(rounds, patience):
            raise self._full("full", self._lasting(rounds), "Too many conversions are waiting.")

    def _is_too_long(self, rounds: float, patience: float) -> bool:
        return rounds > self._rounds or self._lasting(rounds) > patience * _MAX_WAIT_SHARE

    @asynccontextmanager
    async def taken(
        self,
        account_id: str,
        limit: int,
        *,
        memory: int = 0,
        patience: float | None = QUEUE_TIMEOUT,
    ) -> AsyncIterator[None]:
        """A turn of an account that may have `limit` at a time, for a job of `memory` bytes.

        Raises RateLimited, reason `queue_full`, where it cannot begin within `patience` seconds; None waits for as long
        as it takes, and is never refused for what is ahead. Raises NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        if patience is not None:
            self.check(account_id, limit, patience)
        place = QueuedJob(account_id, memory, monotonic())
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

    async def _wait(self, place: QueuedJob, limit: int, called: asyncio.Future[None], patience: float | None) -> None:
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
        return NotReady("The server is stopping.", retry_after=1)


def _wake(called: asyncio.Future[None]) -> None:
    if not called.done():  # as it is where the one that waits was cancelled and has yet to leave
        called.set_result(None)


_SHARE = 0.7  # of the machine's memory; the rest is for the server, the database and the disk cache


def expected_memory(plan: Plan, size: int) -> int:
    """What a job of that plan is likely to take for files of `size` bytes, which nobody has opened yet.

    A file that hides more pixels than its size suggests meets the limit of its own process.
    """
    return needed_bytes(plan, min(size / plan.source.density, MAX_PIXELS))


def memory_budget(root: Path = Path("/")) -> int:
    """What all conversions may take together: a share of the machine's memory, or of what this process may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(_SHARE * min([machine, *_control_group_limits(root)]))


def _control_group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups and of those around them, of both versions."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif controllers == "memory":
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            limit = top / folder / name
            if limit.exists() and (text := limit.read_text().strip()) != "max":
                yield int(text)
