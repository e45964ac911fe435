"""The order of jobs: fair between tenants, within limits, and with a slot that is kept for tenants of short jobs.

Plain data structures without waiting.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import ceil


@dataclass(frozen=True)
class Tenant:
    """An account, or a network address that sends trials: the queue is fair between tenants.

    Runs at most `max_jobs` at a time. `address` is the one that the account was registered from, if it is known. Of a
    tenant that `is_new`, few conversions have succeeded so far.
    """

    id: str
    max_jobs: int
    address: str | None = None
    is_new: bool = False


class Standing(IntEnum):
    """What the earlier jobs of a tenant allow. Each standing may use the slots of those below it."""

    RESTRICTED = 0  # one slot for all of them, while no other tenant waits for it
    UNPROVEN = 1  # all slots but one
    PROVEN = 2  # all slots


@dataclass(eq=False)
class QueuedJob:
    """A job that waits until `started_at` is set. `memory` is in bytes; times are in seconds of one clock.

    A job that is not `ready` keeps its place in the queue, but does not start. `seconds` is how long a process ran the
    job, if it has succeeded and cost its tenant a credit: other jobs prove nothing. No client waits for the response
    of a `background` job.
    """

    tenant: Tenant
    memory: int
    queued_at: float
    started_at: float | None = None
    ready: bool = True
    seconds: float | None = None
    background: bool = False


@dataclass
class _TenantQueue:
    """The jobs of a tenant, by whether they are in the background."""

    tenant: Tenant
    running: Counter[bool] = field(default_factory=Counter)
    waiting: tuple[dict[QueuedJob, None], dict[QueuedJob, None]] = field(default_factory=lambda: ({}, {}))  # ordered


class FairQueue:
    """Round-robin over tenants, FIFO within a tenant.

    Runs at most `slots` jobs whose memory estimates sum to at most `memory` bytes. The tenant that was served longest
    ago is next: a job that starts or ends serves its tenant. If its job exceeds the free memory, all other jobs wait
    until it has started, so that small jobs do not starve a large one. A job larger than the budget runs alone.

    `standing` limits the slots of a tenant. Of two or more slots, one is kept for proven tenants while `keeps_slot`.
    Jobs in the background start if no other one can, and use at most half of the slots while `requests_come`. If they
    already run in more, they continue without blocking other jobs: then, more jobs run than there are slots. They use
    at most half of the memory, but one of them may use more.
    """

    def __init__(
        self,
        slots: int,
        memory: float,
        standing: Callable[[Tenant], Standing] = lambda _tenant: Standing.PROVEN,
        keeps_slot: Callable[[], bool] = lambda: True,
        requests_come: Callable[[], bool] = lambda: True,
    ) -> None:
        self.running = 0
        self.waiting = 0
        self.resize(slots, memory)
        self._standing = standing
        self._keeps_slot = keeps_slot
        self._requests_come = requests_come
        self._used_memory = 0  # bytes
        self._background = 0  # jobs in the background that run
        self._background_memory = 0  # bytes
        self._waiting_background = 0
        self._tenants: dict[str, _TenantQueue] = {}  # tenants with jobs; a start or an end moves its tenant to the end

    @property
    def tenants(self) -> int:
        """Number of tenants with queued or running jobs."""
        return len(self._tenants)

    def resize(self, slots: int, memory: float, sharers: int = 1) -> None:
        """Changes the limits. Of what a tenant may run at a time, this queue has one of `sharers` parts, rounded up.

        Running jobs continue.
        """
        self._slots, self._memory, self._sharers = slots, memory, sharers

    def add(self, job: QueuedJob) -> None:
        """Queues a job."""
        queue = self._tenants.setdefault(job.tenant.id, _TenantQueue(job.tenant))
        queue.tenant = job.tenant
        queue.waiting[job.background][job] = None
        self.waiting += 1
        self._waiting_background += job.background

    def remove(self, job: QueuedJob) -> None:
        """Removes a job, whether it waits or runs."""
        queue = self._tenants[job.tenant.id]
        if job.started_at is None:
            del queue.waiting[job.background][job]
            self.waiting -= 1
            self._waiting_background -= job.background
        else:
            self._move_to_end(job.tenant)
            queue.running[job.background] -= 1
            self.running -= 1
            self._background -= job.background
            self._background_memory -= job.memory * job.background
            self._used_memory -= job.memory
        if not (queue.running.total() or any(queue.waiting)):
            del self._tenants[job.tenant.id]

    def start_next(self, now: float) -> list[QueuedJob]:
        """Starts as many jobs as the limits allow and returns them in order."""
        started = []
        while (job := self._next()) is not None:
            self.start(job, now)
            started.append(job)
        return started

    def start(self, job: QueuedJob, now: float) -> None:
        """Starts a waiting job, whatever the limits allow."""
        queue = self._move_to_end(job.tenant)
        del queue.waiting[job.background][job]
        queue.running[job.background] += 1
        self.waiting -= 1
        self._waiting_background -= job.background
        self.running += 1
        self._background += job.background
        self._background_memory += job.memory * job.background
        self._used_memory += job.memory
        job.started_at = now

    def expected_wait(self, tenant: Tenant, seconds: Callable[[Tenant], float]) -> float:
        """Seconds until a new job of the tenant starts, if the jobs of each tenant take `seconds` of it.

        Jobs of tenants with a lower standing and jobs in the background do not count. 0 if no other job waits.
        """
        standing = self._standing(tenant)
        waiting = {
            name: queue
            for name, queue in self._tenants.items()
            if queue.waiting[False] and self._may_delay(queue, standing)
        }
        if not waiting:
            return 0.0
        own = waiting.pop(tenant.id, None)
        own_jobs = 1 + (len(own.waiting[False]) if own else 0)
        own_work = own_jobs * seconds(tenant)
        # Round-robin: while this tenant starts its jobs, each other tenant starts at most as many.
        counts = [(queue.tenant, min(len(queue.waiting[False]), own_jobs)) for queue in waiting.values()]
        jobs = own_jobs + sum(count for _, count in counts)
        work = own_work + sum(count * seconds(other) for other, count in counts)
        running = self._tenants[tenant.id].running.total() if tenant.id in self._tenants else 0
        slots = self._slots_of(standing)
        return max(
            work * _share(jobs, slots - self.running + self._beyond) / slots,
            own_work * _share(own_jobs, self._most(tenant) - running) / self._most(tenant),
        )

    @property
    def requests(self) -> int:
        """Number of jobs that wait or run, without those in the background."""
        return self.waiting - self._waiting_background + self.running - self._background

    def free_for_background(self) -> int:
        """How many more jobs in the background can start now, beside those that wait."""
        usable = min(self._background_slots, self._slots - (self.running - self._background))
        return max(usable - self._background - self._waiting_background, 0)

    def oldest(self, *, unready: bool = False) -> float | None:
        """The earliest `queued_at` of jobs that wait, or of those that are not ready; None if there are none.

        Jobs in the background do not count.
        """
        jobs = (job for queue in self._tenants.values() for job in queue.waiting[False] if not (unready and job.ready))
        return min((job.queued_at for job in jobs), default=None)

    def _next(self) -> QueuedJob | None:
        if not self.waiting or self.running - self._beyond >= self._slots:
            return None
        standings = {name: self._standing(queue.tenant) for name, queue in self._tenants.items()}
        running = self._count_running(standings)
        full = False  # whether a job waits for memory of the background
        for rank in reversed(_Rank):
            for name, queue in self._tenants.items():
                for background, jobs in enumerate(queue.waiting):
                    kind = standings[name], bool(background)
                    if (
                        not jobs
                        or queue.running.total() >= self._most(queue.tenant)
                        or _rank(*kind) is not rank
                        or not self._has_slot(*kind, running)
                    ):
                        continue
                    job = next((job for job in jobs if job.ready), None)
                    full |= job is not None and background == 1 and not self._has_background_memory(job)
                    if job is not None and not (background and full):
                        fits = not self.running or self._used_memory + job.memory <= self._memory
                        return job if fits else None
        return None

    def _has_background_memory(self, job: QueuedJob) -> bool:
        return not self._background or self._background_memory + job.memory <= self._memory / 2

    def _count_running(self, standings: Mapping[str, Standing]) -> Counter[tuple[Standing, bool]]:
        """The number of running jobs by standing, and by whether they are in the background."""
        running = Counter[tuple[Standing, bool]]()
        for name, queue in self._tenants.items():
            for background, count in queue.running.items():
                running[standings[name], background] += count
        return running

    def _has_slot(self, standing: Standing, background: bool, running: Counter[tuple[Standing, bool]]) -> bool:
        if standing is Standing.RESTRICTED and running[standing, False] + running[standing, True] >= 1:
            return False
        if background:
            return self._background < self._background_slots and self.running < self._slots
        requests = 0
        for each in Standing:
            requests += running[each, False]
            if each >= standing and requests >= self._slots_of(each):
                return False
        return requests + min(self._background, self._background_slots) < self._slots

    def _most(self, tenant: Tenant) -> int:
        """How many jobs of the tenant may run at a time."""
        return ceil(tenant.max_jobs / self._sharers)

    def _slots_of(self, standing: Standing) -> int:
        return slots_of(standing, self._slots, keeps_slot=self._keeps_slot())

    @property
    def _background_slots(self) -> int:
        return background_slots(self._slots, requests_come=self._requests_come())

    @property
    def _beyond(self) -> int:
        """How many jobs in the background run beyond their slots. They take no slot of others."""
        return max(self._background - self._background_slots, 0)

    def _may_delay(self, queue: _TenantQueue, standing: Standing) -> bool:
        return self._standing(queue.tenant) >= standing

    def _move_to_end(self, tenant: Tenant) -> _TenantQueue:
        queue = self._tenants[tenant.id] = self._tenants.pop(tenant.id)
        return queue


def slots_of(standing: Standing, slots: int, *, keeps_slot: bool) -> int:
    """How many of the slots the jobs of tenants with this standing and those below it may use."""
    match standing:
        case Standing.PROVEN:
            return slots
        case Standing.UNPROVEN:
            return max(slots - keeps_slot, 1)
        case Standing.RESTRICTED:
            return 1


def background_slots(slots: int, *, requests_come: bool) -> int:
    """How many of the slots the jobs in the background may use."""
    return ceil(slots / 2) if requests_come else slots


class _Rank(IntEnum):
    """Jobs of a higher rank start before others."""

    RESTRICTED = 0
    BACKGROUND = 1
    REQUEST = 2


def _rank(standing: Standing, background: bool) -> _Rank:
    if standing is Standing.RESTRICTED:
        return _Rank.RESTRICTED
    return _Rank.BACKGROUND if background else _Rank.REQUEST


def _share(jobs: int, free: int) -> float:
    """The share of jobs that start in no free slot."""
    return max(jobs - max(free, 0), 0) / jobs
