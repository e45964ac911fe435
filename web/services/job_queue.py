"""Admission control: a bounded, fair queue in front of the executor, with a memory budget.

`FairQueue` decides the order; `JobQueue` adds waiting, timeouts and refusals. The memory of a job is an estimate
from its plan and the size of its input; the budget is a share of the machine's memory.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import ceil, inf
from pathlib import Path
from time import monotonic

from engine.decode_limits import MAX_PIXELS
from engine.errors import ConversionError, ExecutorUnavailable, OutOfMemory, TimedOut
from engine.executor import JobLimits
from engine.memory_estimate import needed_bytes
from engine.planner import Plan
from web.api.errors import NotReady, RateLimited
from web.services.fair_queue import FairQueue, Overruns, QueuedJob

QUEUE_TIMEOUT = 30.0  # seconds
_MAX_WAIT_SHARE = 0.5  # maximum expected wait as a share of the maximum wait: the expected wait is only a mean
_MEAN_WEIGHT = 0.2  # weight of the latest job in the moving average of durations
_MAX_RETRY_AFTER = 30  # seconds
_RESERVATION_SECONDS = 1.0  # reserving credits takes longer only when the database is stalled
_MEMORY_SHARE = 0.7  # share of the machine's memory; the rest is for the server, the database and the disk cache
_ISOLATED_SECONDS = 25.0  # deadline of a small drawing or program
_ISOLATED_BYTES_PER_SECOND = 40_000  # a larger drawing or program has more time
_RESTRICTED_SECONDS = 10.0  # deadline of the jobs of a restricted account
_LONG_SECONDS = 10.0  # a job that fails, or whose client disconnects, after this time has overrun


class JobQueue:
    """Runs at most `slots` jobs at a time within `memory` bytes, in the order of a FairQueue.

    `check` and `admit` refuse a new job if more than `max_jobs_ahead` jobs per slot are ahead of it, or if the expected
    wait is longer than a share of its maximum wait. `refused` counts refusals by cause: full, late, stopping.
    """

    def __init__(self, slots: int, *, memory: float = inf, max_jobs_ahead: int = 50) -> None:
        self._overruns = Overruns()
        self._queue = FairQueue(slots, memory, self._overruns.is_restricted)
        self.slots = slots
        self._max_jobs_ahead = max_jobs_ahead
        self._waiters: dict[QueuedJob, asyncio.Event] = {}
        self._mean_seconds: float | None = None
        self._closed = False
        self.refused: Counter[str] = Counter()

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
        return 0.0 if oldest is None else monotonic() - oldest

    def check(self, account_id: str, limit: int, max_wait: float = QUEUE_TIMEOUT) -> None:
        """Checks whether a new job of the account can start within `max_wait` seconds. Queues nothing.

        Raises RateLimited, reason `queue_full`, if that is unlikely, and NotReady after `close` or if admitted jobs do
        not become ready because the database does not respond.
        """
        if self._closed:
            raise self._stopping()
        ahead = self._queue.jobs_ahead(account_id, limit)
        expected = ahead * (self._mean_seconds or 0.0)
        if ahead > self._max_jobs_ahead or expected > max_wait * _MAX_WAIT_SHARE:
            unready = self._queue.oldest(unready=True)
            if unready is not None and monotonic() - unready > _RESERVATION_SECONDS:
                raise NotReady("The database does not reserve credits in time.", retry_after=1)
            raise self._full("full", expected, "Too many conversions are waiting.")

    @contextmanager
    def admit(self, account_id: str, limit: int) -> Iterator[QueuedJob]:
        """Takes a place in the queue for a job that the block starts with `acquire`. Raises as `check` does."""
        self.check(account_id, limit)
        job = QueuedJob(account_id, 0, monotonic(), ready=False)
        self._queue.add(job, limit)
        try:
            yield job
        finally:
            if not job.ready:
                self._queue.remove(job)

    @asynccontextmanager
    async def acquire(
        self,
        account_id: str,
        limit: int,
        *,
        memory: int = 0,
        max_wait: float | None = QUEUE_TIMEOUT,
        admitted: QueuedJob | None = None,
    ) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the block, which runs a job of `memory` bytes.

        The account may run `limit` jobs at a time, or one if it is restricted. With a `max_wait` of None the job waits
        without limit. An `admitted` job has its place already; other jobs are queued even if the queue is full. Raises
        RateLimited, reason `queue_full`, if the job cannot start within `max_wait` seconds, and NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        if admitted is None:
            job = QueuedJob(account_id, memory, monotonic())
            self._queue.add(job, limit)
        else:
            job = admitted
            job.memory, job.ready = memory, True
        try:
            self._start_next()
            if job.started_at is None:
                await self._wait(job, limit, max_wait)
            yield
        except BaseException as error:
            self._end(job, error)
            raise
        else:
            self._end(job, None)

    def deadline(self, account_id: str, plan: Plan, size: int) -> float:
        """Returns how many seconds a job of the account with `size` bytes of input may run."""
        seconds = deadline_seconds(plan, size)
        return min(seconds, _RESTRICTED_SECONDS) if self._overruns.is_restricted(account_id) else seconds

    def resize(self, slots: int, memory: float) -> None:
        """Changes the number of slots, at least 1, and the memory in bytes. Running jobs continue."""
        self.slots = slots
        self._queue.resize(slots, memory)
        self._start_next()

    def close(self) -> None:
        """Refuses all queued jobs and all new ones. Running jobs continue."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.set()

    async def _wait(self, job: QueuedJob, limit: int, max_wait: float | None) -> None:
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
        self._overruns.record_refusal(job.account_id)
        seconds = self._queue.jobs_ahead(job.account_id, limit) * (self._mean_seconds or 0.0)
        raise self._full("late", seconds, f"The conversion could not start within {max_wait:g} s.")

    def _end(self, job: QueuedJob, error: BaseException | None) -> None:
        self._queue.remove(job)
        if job.started_at is not None:
            seconds = monotonic() - job.started_at
            if error is not None and _is_overrun(error, seconds):
                # Not in the mean, which is for the expected wait of all accounts: such jobs would make it too long.
                self._overruns.record_overrun(job.account_id)
            else:
                if error is None:
                    self._overruns.record_success(job.account_id)
                mean = seconds if self._mean_seconds is None else self._mean_seconds
                self._mean_seconds = mean + (seconds - mean) * _MEAN_WEIGHT
        self._start_next()

    def _start_next(self) -> None:
        if not self._closed:
            for job in self._queue.start_next(monotonic()):
                if job in self._waiters:
                    self._waiters[job].set()

    def _full(self, cause: str, seconds: float, message: str) -> RateLimited:
        self.refused[cause] += 1
        retry_after = min(max(ceil(seconds), 1), _MAX_RETRY_AFTER)
        return RateLimited(message, retry_after=retry_after, reason="queue_full")

    def _stopping(self) -> NotReady:
        self.refused["stopping"] += 1
        return NotReady("The server is stopping.", retry_after=1)


def _is_overrun(error: BaseException, seconds: float) -> bool:
    if isinstance(error, TimedOut | OutOfMemory):
        return True
    by_job_or_client = isinstance(error, ConversionError | asyncio.CancelledError)
    return by_job_or_client and not isinstance(error, ExecutorUnavailable) and seconds > _LONG_SECONDS


def estimate_memory(plan: Plan, size: int) -> int:
    """The expected memory in bytes of a job of the plan with `size` bytes of input.

    The input is not opened. If it has more pixels than its size suggests, the worker process's memory limit applies.
    """
    return needed_bytes(plan, min(size / plan.source.bytes_per_pixel, MAX_PIXELS))


def deadline_seconds(plan: Plan, size: int) -> float:
    """The deadline in seconds of a job of the plan with `size` bytes of input.

    The time for pictures is bounded by the limits on pixels and frames. Isolated plans read drawings and programs: a
    small file that takes long is more likely to be an attack than a large one.
    """
    longest = JobLimits().seconds
    return min(longest, _ISOLATED_SECONDS + size / _ISOLATED_BYTES_PER_SECOND) if plan.isolated else longest


def memory_budget(root: Path = Path("/")) -> int:
    """The memory in bytes for all jobs together: a share of the machine's memory or of the control group's limit."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(_MEMORY_SHARE * min([machine, *_control_group_limits(root)]))


def _control_group_limits(root: Path) -> Iterator[int]:
    """The memory limits in bytes of this process's control groups and their parents, versions 1 and 2."""
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
