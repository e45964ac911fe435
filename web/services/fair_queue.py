"""The order of jobs: fair between tenants, within limits, and with a slot that is kept for tenants of short jobs.

Plain data structures without waiting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum


@dataclass(frozen=True)
class Tenant:
    """Whom the queue is fair to: an account, or a network address that sends trials.

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
    job, if it has succeeded and cost its tenant a credit: other jobs prove nothing. `shared_id` is its name in a queue
    that processes share.
    """

    tenant: Tenant
    memory: int
    queued_at: float
    started_at: float | None = None
    ready: bool = True
    seconds: float | None = None
    shared_id: str = ""


@dataclass
class _TenantQueue:
    tenant: Tenant
    running: int = 0
    waiting: dict[QueuedJob, None] = field(default_factory=dict)  # an ordered set


class FairQueue:
    """Round-robin over tenants, FIFO within a tenant.

    Runs at most `slots` jobs whose memory estimates sum to at most `memory` bytes. The tenant that was served longest
    ago is next: a job that starts or ends serves its tenant. If its job exceeds the free memory, all other jobs wait
    until it has started, so that small jobs do not starve a large one. A job larger than the budget runs alone.

    `standing` limits the slots of a tenant. Of two or more slots, one is kept for proven tenants while `keeps_slot`.
    """

    def __init__(
        self,
        slots: int,
        memory: float,
        standing: Callable[[Tenant], Standing] = lambda _tenant: Standing.PROVEN,
        keeps_slot: Callable[[], bool] = lambda: True,
    ) -> None:
        self.running = 0
        self.waiting = 0
        self._slots = slots
        self._memory = memory
        self._standing = standing
        self._keeps_slot = keeps_slot
        self._used_memory = 0  # bytes
        self._tenants: dict[str, _TenantQueue] = {}  # tenants with jobs; a start or an end moves its tenant to the end

    @property
    def tenants(self) -> int:
        """Number of tenants with queued or running jobs."""
        return len(self._tenants)

    def resize(self, slots: int, memory: float) -> None:
        """Changes the limits. Running jobs continue."""
        self._slots = slots
        self._memory = memory

    def add(self, job: QueuedJob) -> None:
        """Queues a job."""
        queue = self._tenants.setdefault(job.tenant.id, _TenantQueue(job.tenant))
        queue.tenant = job.tenant
        queue.waiting[job] = None
        self.waiting += 1

    def remove(self, job: QueuedJob) -> None:
        """Removes a job, whether it waits or runs."""
        queue = self._tenants[job.tenant.id]
        if job.started_at is None:
            del queue.waiting[job]
            self.waiting -= 1
        else:
            self._move_to_end(job.tenant)
            queue.running -= 1
            self.running -= 1
            self._used_memory -= job.memory
        if not (queue.running or queue.waiting):
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
        del queue.waiting[job]
        queue.running += 1
        self.waiting -= 1
        self.running += 1
        self._used_memory += job.memory
        job.started_at = now

    def expected_wait(self, tenant: Tenant, seconds: Callable[[Tenant], float]) -> float:
        """Seconds until a new job of the tenant starts, if the jobs of each tenant take `seconds` of it.

        Jobs of tenants with a lower standing do not count. 0 if no other job waits.
        """
        standing = self._standing(tenant)
        waiting = {
            name: queue for name, queue in self._tenants.items() if queue.waiting and self._may_delay(queue, standing)
        }
        if not waiting:
            return 0.0
        own = waiting.pop(tenant.id, None)
        own_jobs = 1 + (len(own.waiting) if own else 0)
        own_work = own_jobs * seconds(tenant)
        # Round-robin: while this tenant starts its jobs, each other tenant starts at most as many.
        counts = [(queue.tenant, min(len(queue.waiting), own_jobs)) for queue in waiting.values()]
        jobs = own_jobs + sum(count for _, count in counts)
        work = own_work + sum(count * seconds(other) for other, count in counts)
        running = self._tenants[tenant.id].running if tenant.id in self._tenants else 0
        slots = self._slots_of(standing)
        return max(
            work * _share(jobs, slots - self.running) / slots,
            own_work * _share(own_jobs, tenant.max_jobs - running) / tenant.max_jobs,
        )

    def oldest(self, *, unready: bool = False) -> float | None:
        """The earliest `queued_at` of all waiting jobs, or of those that are not ready; None if there are none."""
        jobs = (job for queue in self._tenants.values() for job in queue.waiting if not (unready and job.ready))
        return min((job.queued_at for job in jobs), default=None)

    def _next(self) -> QueuedJob | None:
        if self.running >= self._slots or not self.waiting:
            return None
        standings = {name: self._standing(queue.tenant) for name, queue in self._tenants.items()}
        lowest = self._lowest_with_a_slot(standings)
        for last in (False, True):  # restricted tenants only if no other one can start
            for name, queue in self._tenants.items():
                if standings[name] < lowest or (standings[name] is Standing.RESTRICTED) is not last:
                    continue
                job = next((job for job in queue.waiting if job.ready), None)
                if job is not None and queue.running < queue.tenant.max_jobs:
                    fits = not self.running or self._used_memory + job.memory <= self._memory
                    return job if fits else None
        return None

    def _lowest_with_a_slot(self, standings: Mapping[str, Standing]) -> int:
        """The lowest standing whose tenants may start a job: above those that run in all slots up to theirs."""
        lowest = running = 0
        for standing in Standing:
            running += sum(queue.running for name, queue in self._tenants.items() if standings[name] is standing)
            if running >= self._slots_of(standing):
                lowest = standing + 1
        return lowest

    def _slots_of(self, standing: Standing) -> int:
        return slots_of(standing, self._slots, keeps_slot=self._keeps_slot())

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


def _share(jobs: int, free: int) -> float:
    """The share of jobs that start in no free slot."""
    return max(jobs - max(free, 0), 0) / jobs
