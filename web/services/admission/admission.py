"""Admission control: a bounded, fair queue in front of the executor, with a memory budget.

`FairQueue` decides the order; `Admission` adds waiting, timeouts and refusals. The
memory of a job is an estimate from its plan and the size of its input; the budget is a share of the machine's memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from math import ceil, inf
from time import monotonic

from engine.errors import ConversionError
from engine.executor import TaskLimits
from engine.executor.task_time import LONG
from engine.planner import Plan
from web.api.errors import NotReady, RateLimited
from web.services.admission.fair_queue import FairQueue, Kind, QueuedTask, Standing, Tenant
from web.services.admission.task_costs import TaskCost, TaskCosts, cpu_limit, planned_seconds
from web.services.admission.tenant_records import TenantRecords

QUEUE_TIMEOUT = 30.0  # seconds
MAX_EXPECTED_WAIT = 15.0  # seconds; less than the timeout, because it is only a mean
SHORT_DEADLINE = 8.0
"""Seconds of CPU time that a job of a new or restricted tenant may use, besides what its plan is expected to need."""

_MAX_RETRY_AFTER = 30  # seconds
_REQUESTS_COME = 10.0  # seconds after a request in which more are expected
_LONG = 2 * LONG  # seconds after which a job in a slot for short ones counts as long
_STRETCH_WEIGHT = 0.1  # of the latest job in the moving average, and of any job
_MAX_STRETCH = 20.0
_RESERVATION_SECONDS = 1.0  # reserving credits takes longer only when the database is stalled


class Admission:
    """Runs at most `slots` long jobs and as many short ones at a time, within `memory` bytes and fair between tenants.

    Refuses a new job if it is not expected to start soon, by what the jobs before it are expected to cost. `refused`
    counts refusals by cause: full, late, stopping. The jobs of new and restricted tenants may use `short_deadline`
    seconds of CPU time. `clock` returns monotonic time in seconds.

    `on_end`, if it is set, is called when a task leaves the queue.

    Each of several `processes` of a server has an equal share of slots, of memory and of what a tenant may run at a
    time, rounded up.
    """

    def __init__(
        self, slots: int, *, memory: float = inf, processes: int = 1, clock: Callable[[], float] = monotonic
    ) -> None:
        self._records = TenantRecords(clock)
        self._costs = TaskCosts()
        self._stretch = dict.fromkeys(Kind, 1.0)  # seconds in a slot for a second of CPU time
        self._queue = FairQueue(slots, memory, self._records.standing, self._records.any_proven, self._requests_come)
        self._latest_request = -inf
        self.short_deadline = SHORT_DEADLINE
        self.on_end: Callable[[], None] | None = None
        self._clock = clock
        self._waiters: dict[QueuedTask, asyncio.Event] = {}
        self._closed = False
        self.refused: Counter[str] = Counter()
        self.resize(slots, memory, processes)

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """Number of queued jobs."""
        return self._queue.waiting

    @property
    def oldest_wait(self) -> float:
        """Age of the oldest queued job in seconds; 0 if the queue is empty."""
        oldest = self._queue.oldest()
        return 0.0 if oldest is None else self._clock() - oldest

    def check(self, tenant: Tenant) -> None:
        """Checks whether a new job of the tenant is likely to start in time, if it is as its latest. Queues nothing.

        Raises RateLimited, reason `queue_full`, if it is not, and NotReady after `close` or if admitted jobs do not
        become ready because the database does not respond.
        """
        if self._closed:
            raise self._stopping()
        if self._queue.waiting:
            self._check(tenant, _kind(self._records.expected_seconds(tenant)))

    def _check(self, tenant: Tenant, kind: Kind) -> None:
        expected = self._expected_wait(tenant, kind)
        if expected > MAX_EXPECTED_WAIT:
            unready = self._queue.oldest(unready=True)
            if unready is not None and self._clock() - unready > _RESERVATION_SECONDS:
                raise NotReady("The database does not reserve credits in time.", retry_after=1)
            raise self._full("full", expected, "Too many conversions are waiting.")

    def admit(self, tenant: Tenant, cost: TaskCost) -> AbstractContextManager[QueuedTask]:
        """Returns a place in the queue for a job that its block starts with `acquire`. Raises as `check` does."""
        if self._closed:
            raise self._stopping()
        expected = self._costs.expected_seconds(cost)
        kind = _kind(expected)
        if self._queue.waiting:
            self._check(tenant, kind)
        self._latest_request = self._clock()
        return self._place(QueuedTask(tenant, 0, self._latest_request, kind, expected, cost=cost, ready=False))

    def admit_background(self, tenant: Tenant, *, is_part: bool = False) -> AbstractContextManager[QueuedTask]:
        """Returns a place for a job in the background, which is not refused: no client waits for the response."""
        return self._place(QueuedTask(tenant, 0, self._clock(), Kind.BACKGROUND, ready=False, is_part=is_part))

    @contextmanager
    def _place(self, job: QueuedTask) -> Iterator[QueuedTask]:
        self._queue.add(job)
        try:
            yield job
        finally:
            if not job.ready:
                self._queue.remove(job)

    @asynccontextmanager
    async def acquire(self, job: QueuedTask, memory: int = 0, max_wait: float = QUEUE_TIMEOUT) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the block, which runs an admitted job of `memory` bytes.

        The block sets what the job has `used`, and its `seconds` if it is to count as a success. Raises RateLimited,
        reason `queue_full`, if the job cannot start within `max_wait` seconds, and NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        job.memory = memory
        job.ready = True
        try:
            self._start_next()
            if job.started_at is None:
                await self._wait(job, max_wait)
            yield
        except BaseException as error:
            self._end(job, error)
            raise
        else:
            self._end(job, None)

    def limits(self, job: QueuedTask, plans: Iterable[Plan], size: int, seconds: float | None = None) -> TaskLimits:
        """Returns the limits of an admitted job with `size` bytes of input.

        One in the background may run for `seconds`.
        """
        plans = tuple(plans)
        tenant = job.tenant
        limits = TaskLimits(cpu=max(cpu_limit(plan, size) for plan in plans))
        if seconds is not None:
            limits = TaskLimits(seconds=seconds, cpu=2 * seconds)
        if tenant.is_new or self._records.standing(tenant) is Standing.RESTRICTED:
            short = self.short_deadline + sum(planned_seconds(plan, size) for plan in plans)
            return replace(limits, cpu=min(limits.cpu, short))
        return limits

    @property
    def background_standing(self) -> Standing | None:
        """The lowest standing of which another job in the background can start now; None if none can."""
        return None if self._closed else self._queue.background_standing()

    def standing(self, tenant: Tenant) -> Standing:
        """Returns which slots the tenant may use."""
        return self._records.standing(tenant)

    def restore(self, tenant: Tenant, standing: Standing) -> None:
        """Gives a tenant of which nothing is known the standing that it had before this process started."""
        self._records.restore(tenant, standing)

    def resize(self, slots: int, memory: float, sharers: int = 1) -> None:
        """Changes the number of slots, and the memory in bytes, which the `sharers` divide. Running jobs continue."""
        self.slots = slots
        self._queue.resize(ceil(slots / sharers), memory / sharers, sharers)
        self._start_next()

    def close(self) -> None:
        """Refuses all queued jobs and all new ones. Running jobs continue."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.set()

    async def _wait(self, job: QueuedTask, max_wait: float) -> None:
        waiter = self._waiters[job] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max_wait):
                    await waiter.wait()
        finally:
            del self._waiters[job]
        if job.started_at is not None:
            return
        if self._closed:
            raise self._stopping()
        if job.background:
            raise RateLimited("The job has found no slot.", retry_after=1, reason="queue_full")
        self._records.record_refusal(job.tenant)
        seconds = self._expected_wait(job.tenant, job.kind)
        raise self._full("late", seconds, f"The conversion could not start within {max_wait:g} s.")

    def _end(self, job: QueuedTask, error: BaseException | None) -> None:
        if job.started_at is not None:
            if error is not None:
                job.used = used_seconds(error)
                self._records.record_failure(job.tenant, error)
            elif job.seconds is not None:
                self._records.record_success(job.tenant, job.seconds)
                stretch = min(max((self._clock() - job.started_at) / max(job.used, 1e-3), 1.0), _MAX_STRETCH)
                self._stretch[job.kind] += (stretch - self._stretch[job.kind]) * _STRETCH_WEIGHT
            if job.cost is not None:
                self._costs.record(job.cost, job.used, complete=error is None)
        self._queue.remove(job)
        self._start_next()
        if self.on_end is not None:
            self.on_end()

    def _start_next(self) -> None:
        for job in [] if self._closed else self._queue.start_next(self._clock()):
            if job.kind is Kind.SHORT:
                asyncio.get_running_loop().call_later(_LONG, self._lengthen, job)
            if job in self._waiters:
                self._waiters[job].set()

    def _lengthen(self, job: QueuedTask) -> None:
        if self._queue.lengthen(job):
            self._start_next()

    def _expected_wait(self, tenant: Tenant, kind: Kind) -> float:
        """The seconds after which a new job of the tenant is expected to start."""
        return self._queue.expected_wait(tenant, kind) * self._stretch[kind]

    def _requests_come(self) -> bool:
        """Whether requests wait or run, or one came a short time ago."""
        return self._clock() - self._latest_request < _REQUESTS_COME or self._queue.requests > 0

    def _full(self, cause: str, seconds: float, message: str) -> RateLimited:
        self.refused[cause] += 1
        retry_after = min(max(ceil(seconds), 1), _MAX_RETRY_AFTER)
        return RateLimited(message, retry_after=retry_after, reason="queue_full")

    def _stopping(self) -> NotReady:
        self.refused["stopping"] += 1
        return NotReady("The server is stopping.", retry_after=1)


def used_seconds(error: BaseException) -> float:
    """Returns the CPU time of a job that was cancelled or failed with this error, as the executor reports it."""
    cause = error.__cause__ if isinstance(error, asyncio.CancelledError) else error
    return (cause.seconds or 0.0) if isinstance(cause, ConversionError) else 0.0


def _kind(expected: float) -> Kind:
    return Kind.SHORT if expected <= LONG else Kind.LONG
