"""The order of jobs: fair between lanes by the CPU time that they have used, within limits on slots and memory.

Plain data structures without waiting. `storage.tables.job_runs` has the same rules, in SQL, for jobs that no server has
claimed yet: `tests/storage/test_fair_order.py` tests both by one table of cases.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import chain
from math import ceil

from storage.tables.jobs import MAX_LEAD, START_CHARGE
from web.services.admission.task_costs import TaskCost

PATIENCE = 5.0
"""Seconds for which short jobs start before a long one that has a slot, but may wait for memory."""

_MAX_IDLE = 10_000


@dataclass(frozen=True)
class Tenant:
    """An account, or a network address that sends trials. Runs at most `max_jobs` at a time.

    `address` is the one that the account was registered from, if it is known. Of a tenant that `is_new`, few
    conversions have succeeded so far.
    """

    id: str
    max_jobs: int
    address: str | None = None
    is_new: bool = False

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the records of the tenant and of its address."""
        return f"account {self.id}", *([f"address {self.address}"] if self.address else [])

    @cached_property
    def crowd(self) -> str:
        """Those that share a lane and the limits of one of them: the new tenants of an address, or the tenant alone."""
        return f"address {self.address}" if self.is_new and self.address else self.id


class Standing(IntEnum):
    """What the earlier jobs of a tenant allow. Each standing may use the slots of those below it."""

    RESTRICTED = 0  # one slot for all of them, while no other tenant waits for it
    UNPROVEN = 1  # all slots but one
    PROVEN = 2  # all slots


class Kind(IntEnum):
    """What a job uses: a slot for short or for long jobs. Kinds are in the order in which they start."""

    SHORT = 0
    LONG = 1
    BACKGROUND = 2  # slots for long jobs that these leave, and at least half of them


_STANDINGS = tuple(Standing)  # quicker to iterate


@dataclass(eq=False)
class QueuedTask:
    """A job that waits until `started_at` is set. `memory` is in bytes; times are in seconds of one clock.

    A job that is not `ready` keeps its place in the queue, but does not start. `expected` is the CPU time in seconds
    that it is likely to use, and `used` what it has used in the end. `seconds` is the same if it has succeeded and cost
    its tenant a credit: other jobs prove nothing. The `cost` is known of jobs for which a client waits. One that
    `is_part` of a job with others waits for its turn beside those that are whole. A running SHORT job that takes long
    becomes LONG, and was `misjudged`.
    """

    tenant: Tenant
    memory: int
    queued_at: float
    kind: Kind = Kind.LONG
    expected: float = START_CHARGE
    started_at: float | None = None
    ready: bool = True
    seconds: float | None = None
    used: float = 0.0
    cost: TaskCost | None = None
    is_part: bool = False
    misjudged: bool = False

    @property
    def background(self) -> bool:
        """Whether no client waits for the response."""
        return self.kind is Kind.BACKGROUND


@dataclass
class _Lane:
    """The jobs of a crowd, of which `most` run at a time. `served` is its virtual time: used CPU time in seconds."""

    served: float
    most: int = 1
    running: set[QueuedTask] = field(default_factory=set)
    waiting: dict[Kind, dict[QueuedTask, None]] = field(default_factory=lambda: {kind: {} for kind in Kind})  # ordered

    @property
    def settled(self) -> float:
        """The virtual time without the jobs that run."""
        return self.served - sum(job.expected for job in self.running)


class FairQueue:
    """The lane that has used least CPU time is next; FIFO within a lane and kind.

    A start charges a lane what the job is expected to use, its end what it has used instead. A lane that gets its first
    job starts at the mean of those with jobs, or where it was if that is later. None is more than MAX_LEAD seconds
    behind another one: so much of others it waits for, at most.

    Runs at most `slots` long jobs and as many short ones, whose memory estimates sum to at most `memory` bytes. If the
    next job exceeds the free memory, all others wait until it has started, so that small jobs do not starve a large
    one; short jobs pass it for PATIENCE seconds. A job larger than the budget runs alone. A short job that takes long
    counts as long, and its slot is free again; its lane has no other short slot until it ends.

    `standing` limits the slots of a tenant. Of two or more slots of a kind, one is kept for proven tenants while
    `keeps_slot`. Jobs in the background start if no other one can, and use at most half of the slots, and the kept
    slot, while `requests_come`. If they already run in more, they continue without blocking other jobs: then, more jobs
    run than there are slots. They use at most half of the memory, but one of them may use more.
    """

    def __init__(
        self,
        slots: int,
        memory: float,
        standing: Callable[[Tenant], Standing] = lambda _tenant: Standing.PROVEN,
        keeps_slot: Callable[[], bool] = lambda: True,
        requests_come: Callable[[], bool] = lambda: True,
    ) -> None:
        self.resize(slots, memory)
        self._standing = standing
        self._keeps_slot = keeps_slot
        self._requests_come = requests_come
        self._lanes: dict[str, _Lane] = {}  # those with jobs; a start moves its lane to the end
        self._idle: dict[str, float] = {}  # the virtual times of others, ordered by their end
        self._running: dict[QueuedTask, _Lane] = {}
        self._waiting = dict.fromkeys(Kind, 0)

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of queued jobs."""
        return sum(self._waiting.values())

    @property
    def tenants(self) -> int:
        """Number of lanes with queued or running jobs."""
        return len(self._lanes)

    @property
    def requests(self) -> int:
        """Number of jobs that wait or run, without those in the background."""
        return sum(not job.background for job in self._running) + self.waiting - self._waiting[Kind.BACKGROUND]

    def resize(self, slots: int, memory: float, sharers: int = 1) -> None:
        """Changes the limits. Of what a tenant may run at a time, this queue has one of `sharers` parts, rounded up.

        Running jobs continue.
        """
        self._slots = slots
        self._memory = memory
        self._sharers = sharers

    def add(self, job: QueuedTask) -> None:
        """Queues a job."""
        crowd = job.tenant.crowd
        if crowd not in self._lanes:
            self._lanes[crowd] = _Lane(self._clamp(max(self._idle.pop(crowd, 0.0), self._mean())))
        lane = self._lanes[crowd]
        lane.most = ceil(job.tenant.max_jobs / self._sharers)
        lane.waiting[job.kind][job] = None
        self._waiting[job.kind] += 1

    def remove(self, job: QueuedTask) -> None:
        """Removes a job, whether it waits or runs."""
        crowd = job.tenant.crowd
        lane = self._lanes[crowd]
        if job.started_at is None:
            del lane.waiting[job.kind][job]
            self._waiting[job.kind] -= 1
        else:
            lane.running.remove(job)
            del self._running[job]
            lane.served = self._clamp(lane.served + job.used - job.expected)
        if not (lane.running or any(lane.waiting.values())):
            del self._lanes[crowd]
            self._idle[crowd] = lane.served
            if len(self._idle) > _MAX_IDLE:
                del self._idle[next(iter(self._idle))]

    def start_next(self, now: float) -> list[QueuedTask]:
        """Starts as many jobs as the limits allow and returns them in order."""
        started = []
        while (job := self._next(now)) is not None:
            lane = self._lanes[job.tenant.crowd] = self._lanes.pop(job.tenant.crowd)
            del lane.waiting[job.kind][job]
            self._waiting[job.kind] -= 1
            lane.running.add(job)
            self._running[job] = lane
            lane.served = self._clamp(lane.served + job.expected)
            job.started_at = now
            started.append(job)
        return started

    def lengthen(self, job: QueuedTask) -> bool:
        """Counts a short job, which takes longer than expected, as a long one, if it still runs. Returns whether."""
        if job not in self._running:
            return False
        job.kind = Kind.LONG
        job.misjudged = True
        return True

    def expected_wait(self, tenant: Tenant, kind: Kind) -> float:
        """The CPU seconds of the jobs that start before a new job of the tenant, for each slot that it can use.

        Jobs of tenants with a lower standing do not count. 0 if no other job waits.
        """
        standing = self._standing(tenant)
        own = self._lanes.get(tenant.crowd)
        first = own.served if own else self._mean()
        own_work = _work(own, kind) if own else 0.0
        work = own_work
        for lane in self._lanes.values():
            if lane is not own and lane.waiting[kind]:
                others = [job for job in lane.waiting[kind] if self._standing(job.tenant) >= standing]
                # Until this lane has used as much as its jobs need, each other one starts until it has used more.
                due = max(first + own_work - lane.served, 0.0)
                work += min(sum(job.expected for job in others), due + max((job.expected for job in others), default=0))
        return max(work / self._slots_of(standing), own_work / ceil(tenant.max_jobs / self._sharers))

    def background_standing(self) -> Standing | None:
        """The lowest standing of which another job in the background can start now; None if none can.

        Parts of a job do not count: there are always more of them, and the other job takes turns with them.
        """
        lines = (lane.waiting[Kind.BACKGROUND] for lane in self._lanes.values())
        counts = self._count(job for job in chain(self._running, *lines) if not job.is_part)
        return next((each for each in Standing if self._has_slot(each, Kind.BACKGROUND, counts)), None)

    def oldest(self, *, unready: bool = False) -> float | None:
        """The earliest `queued_at` of jobs that wait, or of those that are not ready; None if there are none.

        Jobs in the background do not count.
        """
        lines = (lane.waiting[kind] for lane in self._lanes.values() for kind in (Kind.SHORT, Kind.LONG))
        return min((job.queued_at for line in lines for job in line if not (unready and job.ready)), default=None)

    def _next(self, now: float) -> QueuedTask | None:
        full = False
        for job in self._candidates(now) if self.waiting else ():
            if job.background and (full or not self._has_background_memory(job)):
                full = True  # no other one in the background passes it
            else:
                used = sum(each.memory for each in self._running)
                return job if not self._running or used + job.memory <= self._memory else None
        return None

    def _candidates(self, now: float) -> list[QueuedTask]:
        """The first job of each lane and kind that has a slot, in the order in which they start."""
        counts = self._count(self._running)
        found = list[tuple[int, QueuedTask]]()
        for kind, waiting in self._waiting.items():
            if not waiting or not self._has_slot(Standing.PROVEN, kind, counts):
                continue
            for lane in sorted(self._lanes.values(), key=lambda lane: lane.served):
                job = next((job for job in lane.waiting[kind] if job.ready), None)
                barred = kind is Kind.SHORT and any(job.misjudged for job in lane.running)
                if job is None or barred or len(lane.running) >= lane.most:
                    continue
                standing = self._standing(job.tenant)
                if self._has_slot(standing, kind, counts):
                    late = kind is Kind.LONG and now - job.queued_at > PATIENCE
                    found.append((2 if standing is Standing.RESTRICTED else int(not late), job))
        return [job for _, job in sorted(found, key=lambda each: each[0])]

    def _has_background_memory(self, job: QueuedTask) -> bool:
        used = [each.memory for each in self._running if each.background]
        return not used or sum(used) + job.memory <= self._memory / 2

    def _count(self, jobs: Iterable[QueuedTask]) -> dict[tuple[Standing, Kind], int]:
        """The number of jobs by standing and kind."""
        counts = defaultdict[tuple[Standing, Kind], int](int)
        for job in jobs:
            counts[self._standing(job.tenant), job.kind] += 1
        return counts

    def _has_slot(self, standing: Standing, kind: Kind, running: dict[tuple[Standing, Kind], int]) -> bool:
        if standing is Standing.RESTRICTED and any(running[standing, each] for each in Kind):
            return False
        background = sum(running[each, Kind.BACKGROUND] for each in _STANDINGS)
        occupied = min(background, self._background_slots) if kind is Kind.LONG else 0
        count = 0
        for each in _STANDINGS:
            count += running[each, kind]
            limit = self._background_slots_of(each) if kind is Kind.BACKGROUND else self._slots_of(each)
            if each >= standing and count >= limit:
                return False
        if kind is Kind.BACKGROUND:
            return background + sum(running[each, Kind.LONG] for each in _STANDINGS) < self._slots
        return count + occupied < self._slots

    def _slots_of(self, standing: Standing) -> int:
        match standing:
            case Standing.PROVEN:
                return self._slots
            case Standing.UNPROVEN:
                return max(self._slots - self._keeps_slot(), 1)
            case Standing.RESTRICTED:
                return 1

    @property
    def _background_slots(self) -> int:
        return ceil(self._slots / 2) if self._requests_come() else self._slots

    def _background_slots_of(self, standing: Standing) -> int:
        others = min(self._background_slots, self._slots_of(min(standing, Standing.UNPROVEN)))
        return others + self._keeps_slot() if standing is Standing.PROVEN else others

    def _mean(self) -> float:
        return sum(lane.settled for lane in self._lanes.values()) / max(len(self._lanes), 1)

    def _clamp(self, served: float) -> float:
        return min([served, *(lane.settled + MAX_LEAD for lane in self._lanes.values())])


def _work(lane: _Lane, kind: Kind) -> float:
    """The CPU time in seconds that the waiting jobs of a kind are expected to use."""
    return sum(job.expected for job in lane.waiting[kind])
