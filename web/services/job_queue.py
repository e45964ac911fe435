"""Admission control: a bounded, fair queue in front of the executor, with a memory budget.

`FairQueue` decides the order; `JobQueue` adds waiting, timeouts and refusals. The
memory of a job is an estimate from its plan and the size of its input; the budget is a share of the machine's memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import ceil, inf
from time import monotonic

from engine.decode_limits import MAX_PIXELS
from engine.executor import JobLimits
from engine.memory_estimate import needed_bytes
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan
from web.api.errors import NotReady, RateLimited
from web.services.fair_queue import FairQueue, QueuedJob, Standing, Tenant
from web.services.job_records import JobRecords

QUEUE_TIMEOUT = 30.0  # seconds
MAX_EXPECTED_WAIT = 15.0  # seconds; less than the timeout, because it is only a mean
SHORT_DEADLINE = 8.0
"""Seconds that a job of a new or restricted tenant may run."""

_MAX_RETRY_AFTER = 30  # seconds
_REQUESTS_COME = 10.0  # seconds after a request in which more are expected
_RESERVATION_SECONDS = 1.0  # reserving credits takes longer only when the database is stalled
_ISOLATED_SECONDS = 25.0  # deadline of a small drawing or program
_ISOLATED_BYTES_PER_SECOND = 40_000  # a larger drawing or program has more time


class JobQueue:
    """Runs at most `slots` jobs at a time within `memory` bytes, in the order of a FairQueue.

    Refuses a new job if it is not expected to start soon, by the measured durations of jobs. `refused` counts refusals
    by cause: full, late, stopping. The jobs of new and restricted tenants may run for `short_deadline` seconds. `clock`
    returns monotonic time in seconds.

    `on_end` is called when a job leaves the queue.

    Each of several `processes` of a server has an equal share of slots, of memory and of what a tenant may run at a
    time, rounded up.
    """

    def __init__(
        self, slots: int, *, memory: float = inf, processes: int = 1, clock: Callable[[], float] = monotonic
    ) -> None:
        self._records = JobRecords(clock)
        self._queue = FairQueue(slots, memory, self._records.standing, self._records.any_proven, self._requests_come)
        self._latest_request = -inf
        self.short_deadline = SHORT_DEADLINE
        self.on_end: Callable[[], None] = lambda: None
        self._clock = clock
        self._waiters: dict[QueuedJob, asyncio.Event] = {}
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
        """Checks whether a new job of the tenant is likely to start in time. Queues nothing.

        Raises RateLimited, reason `queue_full`, if it is not, and NotReady after `close` or if admitted jobs do not
        become ready because the database does not respond.
        """
        if self._closed:
            raise self._stopping()
        expected = self._queue.expected_wait(tenant, self._records.expected_seconds)
        if expected > MAX_EXPECTED_WAIT:
            unready = self._queue.oldest(unready=True)
            if unready is not None and self._clock() - unready > _RESERVATION_SECONDS:
                raise NotReady("The database does not reserve credits in time.", retry_after=1)
            raise self._full("full", expected, "Too many conversions are waiting.")

    @contextmanager
    def admit(self, tenant: Tenant, *, background: bool = False) -> Iterator[QueuedJob]:
        """Takes a place in the queue for a job that the block starts with `acquire`. Raises as `check` does.

        A job in the `background` is not refused: no client waits for the response.
        """
        if not background:
            self.check(tenant)
            self._latest_request = self._clock()
        job = QueuedJob(tenant, 0, self._clock(), ready=False, background=background)
        self._queue.add(job)
        try:
            yield job
        finally:
            if not job.ready:
                self._queue.remove(job)

    @asynccontextmanager
    async def acquire(self, job: QueuedJob, memory: int = 0, max_wait: float = QUEUE_TIMEOUT) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the block, which runs an admitted job of `memory` bytes.

        The block sets the `seconds` of the job if it is to count as a success. Raises RateLimited, reason `queue_full`,
        if the job cannot start within `max_wait` seconds, and NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        job.memory, job.ready = memory, True
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

    def deadline(self, tenant: Tenant, plan: Plan, size: int) -> float:
        """Returns how many seconds a job of the tenant with `size` bytes of input may run."""
        seconds = deadline_seconds(plan, size)
        short = tenant.is_new or self._records.standing(tenant) is Standing.RESTRICTED
        return min(seconds, self.short_deadline) if short else seconds

    @property
    def free_for_background(self) -> int:
        """How many more jobs in the background can start now."""
        return 0 if self._closed else self._queue.free_for_background()

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

    async def _wait(self, job: QueuedJob, max_wait: float) -> None:
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
        seconds = self._queue.expected_wait(job.tenant, self._records.expected_seconds)
        raise self._full("late", seconds, f"The conversion could not start within {max_wait:g} s.")

    def _end(self, job: QueuedJob, error: BaseException | None) -> None:
        self._queue.remove(job)
        if job.started_at is not None:
            if error is not None:
                if not (job.background and isinstance(error, asyncio.CancelledError)):  # it may be queued again
                    self._records.record_failure(job.tenant, error)
            elif job.seconds is not None:
                self._records.record_success(job.tenant, job.seconds, self._clock() - job.started_at)
        self._start_next()
        self.on_end()

    def _start_next(self) -> None:
        for job in [] if self._closed else self._queue.start_next(self._clock()):
            if job in self._waiters:
                self._waiters[job].set()

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


def estimate_memory(plan: Plan, size: int, options: OptionValues = NO_OPTIONS) -> int:
    """The expected memory in bytes of a job of the plan and its options with `size` bytes of input.

    The input is not opened. If it has more pixels than its size suggests, the worker process's memory limit applies.
    """
    return needed_bytes(plan, min(size / plan.source.bytes_per_pixel, MAX_PIXELS), options)


def deadline_seconds(plan: Plan, size: int) -> float:
    """The deadline in seconds of a job of the plan with `size` bytes of input.

    The time for pictures is bounded by the limits on pixels and frames. Isolated plans read drawings and programs: a
    small file that takes long is more likely to be an attack than a large one.
    """
    longest = JobLimits().seconds
    return min(longest, _ISOLATED_SECONDS + size / _ISOLATED_BYTES_PER_SECOND) if plan.isolated else longest
