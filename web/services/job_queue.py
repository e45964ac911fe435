"""Admission control: a bounded, fair queue in front of the executor, with a memory budget.

`FairQueue` is the scheduling as a plain data structure; `JobQueue` adds waiting, timeouts and refusals; `Overruns`
restricts accounts whose jobs keep exceeding their limits. The memory of a job is an estimate from its plan and the size
of its input; the budget is a share of the machine's memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from time import monotonic

from engine.decode_limits import MAX_PIXELS
from engine.errors import ConversionError, ExecutorUnavailable, OutOfMemory, TimedOut
from engine.memory_estimate import needed_bytes
from engine.planner import Plan
from web.api.errors import NotReady, RateLimited

log = logging.getLogger("convertd.queue")

QUEUE_TIMEOUT = 30.0  # seconds
_MAX_WAIT_SHARE = 0.5  # maximum expected wait as a share of the maximum wait: the expected wait is only a mean
_MEAN_WEIGHT = 0.2  # weight of the latest job in the moving average of durations
_MAX_RETRY_AFTER = 30  # seconds
_MEMORY_SHARE = 0.7  # share of the machine's memory; the rest is for the server, the database and the disk cache
_MAX_OVERRUNS = 3  # until an account is restricted
_OVERRUN_SECONDS = 600.0  # since the latest overrun, until all are forgotten
_SUCCESSES_PER_OVERRUN = 10  # successful jobs that make up for an overrun
_LONG_SECONDS = 10.0  # a job that fails, or whose client disconnects, after this time has overrun


@dataclass(eq=False)
class QueuedJob:
    """A job that waits until `started_at` is set. `memory` is in bytes; times are in seconds of one clock.

    A job that is not `ready` keeps its place in the queue, but does not start.
    """

    account_id: str
    memory: int
    queued_at: float
    started_at: float | None = None
    ready: bool = True


@dataclass
class _AccountOverruns:
    points: int  # decreased by each successful job
    latest: float  # monotonic time


class Overruns:
    """Counts overruns by account: jobs that exceeded their deadline or memory limit, or failed after a long time.

    An account is restricted after three overruns. Ten successful jobs make up for one, and ten minutes without an
    overrun for all.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _AccountOverruns] = {}  # ordered by the latest overrun

    def is_restricted(self, account_id: str) -> bool:
        """Whether the account shares one slot with all other restricted accounts."""
        account = self._accounts.get(account_id)
        return (
            account is not None
            and account.points > (_MAX_OVERRUNS - 1) * _SUCCESSES_PER_OVERRUN
            and not self._is_over(account)
        )

    def record_overrun(self, account_id: str) -> None:
        """Counts an overrun, and logs a warning if it restricts the account."""
        while self._accounts and self._is_over(next(iter(self._accounts.values()))):
            del self._accounts[next(iter(self._accounts))]
        was_restricted = self.is_restricted(account_id)
        account = self._accounts.pop(account_id, _AccountOverruns(0, 0.0))
        account.points += _SUCCESSES_PER_OVERRUN
        account.latest = self._clock()
        self._accounts[account_id] = account
        if self.is_restricted(account_id) and not was_restricted:
            log.warning("account %s is restricted: its jobs keep exceeding their limits", account_id)

    def record_success(self, account_id: str) -> None:
        """Counts a successful job."""
        account = self._accounts.get(account_id)
        if account is not None:
            account.points -= 1
            if not account.points:
                del self._accounts[account_id]

    def _is_over(self, account: _AccountOverruns) -> bool:
        return self._clock() - account.latest > _OVERRUN_SECONDS


@dataclass
class _AccountQueue:
    limit: int
    running: int = 0
    waiting: dict[QueuedJob, None] = field(default_factory=dict)  # an ordered set


class FairQueue:
    """Round-robin over accounts, FIFO within an account.

    Runs at most `slots` jobs whose memory estimates sum to at most `memory` bytes, and at most `limit` jobs of one
    account. The account whose latest start is longest ago is next. If its job exceeds the free memory, all other jobs
    wait until it has started, so that small jobs do not starve a large one. A job larger than the budget runs alone.

    Accounts for which `is_restricted` is true run one job at a time, all together.
    """

    def __init__(
        self, slots: int, memory: float, is_restricted: Callable[[str], bool] = lambda _account_id: False
    ) -> None:
        self.running = 0
        self.waiting = 0
        self._slots = slots
        self._memory = memory
        self._is_restricted = is_restricted
        self._used_memory = 0  # bytes
        self._accounts: dict[str, _AccountQueue] = {}  # accounts with jobs; a start moves its account to the end

    def add(self, job: QueuedJob, limit: int) -> None:
        """Queues a job of an account that may run `limit` jobs at a time."""
        account = self._accounts.setdefault(job.account_id, _AccountQueue(limit))
        account.limit = limit
        account.waiting[job] = None
        self.waiting += 1

    def remove(self, job: QueuedJob) -> None:
        """Removes a job, whether it waits or runs."""
        account = self._accounts[job.account_id]
        if job.started_at is None:
            del account.waiting[job]
            self.waiting -= 1
        else:
            account.running -= 1
            self.running -= 1
            self._used_memory -= job.memory
        if not (account.running or account.waiting):
            del self._accounts[job.account_id]

    def start_next(self, now: float) -> list[QueuedJob]:
        """Starts as many jobs as the limits allow and returns them in order."""
        started = []
        while (job := self._next()) is not None:
            account = self._accounts[job.account_id] = self._accounts.pop(job.account_id)
            del account.waiting[job]
            account.running += 1
            self.waiting -= 1
            self.running += 1
            self._used_memory += job.memory
            job.started_at = now
            started.append(job)
        return started

    def jobs_ahead(self, account_id: str, limit: int) -> float:
        """Number of queued jobs per slot that start up to and including a new job of this account.

        Jobs that start in free slots do not count. 0 if no job waits that competes with the new one: restricted
        accounts do not delay others.
        """
        restricted = self._is_restricted(account_id)
        waiting = {
            name: len(account.waiting)
            for name, account in self._accounts.items()
            if account.waiting and self._is_restricted(name) is restricted
        }
        if not waiting:
            return 0.0
        account_jobs = 1 + waiting.pop(account_id, 0)
        # Round-robin: while this account starts its jobs, each other account starts at most as many.
        total = account_jobs + sum(min(count, account_jobs) for count in waiting.values())
        slots = 1 if restricted else self._slots
        account = self._accounts.get(account_id)
        free, free_of_account = slots - self.running, limit - (account.running if account else 0)
        return max((total - max(free, 0)) / slots, (account_jobs - max(free_of_account, 0)) / limit, 0.0)

    def oldest(self) -> float | None:
        """The earliest `queued_at` of all waiting jobs; None if no job waits."""
        first_jobs = (next(iter(account.waiting)) for account in self._accounts.values() if account.waiting)
        return min((job.queued_at for job in first_jobs), default=None)

    def _next(self) -> QueuedJob | None:
        if self.running == self._slots:
            return None
        for account_id, account in self._accounts.items():
            job = next((job for job in account.waiting if job.ready), None)
            if job is not None and account.running < account.limit and self._may_start(account_id):
                return job if self._fits(job) else None
        return None

    def _may_start(self, account_id: str) -> bool:
        """Whether the account is not restricted, or no restricted account runs a job."""
        if not self._is_restricted(account_id):
            return True
        return not any(account.running and self._is_restricted(name) for name, account in self._accounts.items())

    def _fits(self, job: QueuedJob) -> bool:
        return not self.running or self._used_memory + job.memory <= self._memory


class JobQueue:
    """Runs at most `slots` jobs at a time within `memory` bytes, in the order of a FairQueue.

    `check` and `admit` refuse a new job if more than `max_jobs_ahead` jobs per slot are ahead of it, or if the expected
    wait is longer than a share of its maximum wait. `refused` counts refusals by cause: full, late, stopping.
    """

    def __init__(self, slots: int, *, memory: float = inf, max_jobs_ahead: int = 50) -> None:
        self._overruns = Overruns()
        self._queue = FairQueue(slots, memory, self._overruns.is_restricted)
        self._max_jobs_ahead = max_jobs_ahead
        self._started: dict[QueuedJob, asyncio.Future[None]] = {}
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

        Raises RateLimited, reason `queue_full`, if that is unlikely, and NotReady after `close`.
        """
        if self._closed:
            raise self._stopping()
        ahead = self._queue.jobs_ahead(account_id, limit)
        if self._is_too_long(ahead, max_wait):
            raise self._full("full", self._expected_seconds(ahead), "Too many conversions are waiting.")

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
        started = self._started[job] = asyncio.get_running_loop().create_future()
        try:
            self._start_next()
            if job.started_at is None:
                await self._wait(job, limit, started, max_wait)
            yield
        except BaseException as error:
            self._end(job, error)
            raise
        else:
            self._end(job, None)

    def close(self) -> None:
        """Refuses all queued jobs and all new ones. Running jobs continue."""
        self._closed = True
        for started in self._started.values():
            _wake(started)

    async def _wait(self, job: QueuedJob, limit: int, started: asyncio.Future[None], max_wait: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait):
                await started
        if job.started_at is not None:
            return
        if self._closed:
            raise self._stopping()
        seconds = self._expected_seconds(self._queue.jobs_ahead(job.account_id, limit))
        raise self._full("late", seconds, f"The conversion could not start within {max_wait:g} s.")

    def _end(self, job: QueuedJob, error: BaseException | None) -> None:
        del self._started[job]
        self._queue.remove(job)
        if job.started_at is not None:
            self._record(job.account_id, monotonic() - job.started_at, error)
        self._start_next()

    def _record(self, account_id: str, seconds: float, error: BaseException | None) -> None:
        if _is_overrun(error, seconds):
            self._overruns.record_overrun(account_id)
            return  # the mean is for the expected wait of all accounts, which such jobs would make too long
        if error is None:
            self._overruns.record_success(account_id)
        self._update_mean(seconds)

    def _start_next(self) -> None:
        if not self._closed:
            for job in self._queue.start_next(monotonic()):
                _wake(self._started[job])

    def _update_mean(self, seconds: float) -> None:
        mean = seconds if self._mean_seconds is None else self._mean_seconds
        self._mean_seconds = mean + (seconds - mean) * _MEAN_WEIGHT

    def _expected_seconds(self, jobs_ahead: float) -> float:
        return jobs_ahead * (self._mean_seconds or 0.0)

    def _is_too_long(self, jobs_ahead: float, max_wait: float) -> bool:
        return jobs_ahead > self._max_jobs_ahead or self._expected_seconds(jobs_ahead) > max_wait * _MAX_WAIT_SHARE

    def _full(self, cause: str, seconds: float, message: str) -> RateLimited:
        self.refused[cause] += 1
        retry_after = min(max(ceil(seconds), 1), _MAX_RETRY_AFTER)
        return RateLimited(message, retry_after=retry_after, reason="queue_full")

    def _stopping(self) -> NotReady:
        self.refused["stopping"] += 1
        return NotReady("The server is stopping.", retry_after=1)


def _is_overrun(error: BaseException | None, seconds: float) -> bool:
    if isinstance(error, TimedOut | OutOfMemory):
        return True
    by_job_or_client = isinstance(error, ConversionError | asyncio.CancelledError)
    return by_job_or_client and not isinstance(error, ExecutorUnavailable) and seconds > _LONG_SECONDS


def _wake(started: asyncio.Future[None]) -> None:
    if not started.done():  # a cancelled waiter has not removed itself yet
        started.set_result(None)


def estimate_memory(plan: Plan, size: int) -> int:
    """The expected memory in bytes of a job of the plan with `size` bytes of input.

    The input is not opened. If it has more pixels than its size suggests, the worker process's memory limit applies.
    """
    return needed_bytes(plan, min(size / plan.source.bytes_per_pixel, MAX_PIXELS))


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
