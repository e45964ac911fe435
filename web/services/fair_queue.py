"""The order of jobs: fair between accounts, within limits, and restricted for accounts whose jobs exceed theirs.

Plain data structures without waiting.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

log = logging.getLogger("convertd.queue")

_MAX_OVERRUNS = 3  # an account with as many is restricted
_OVERRUN_MEMORY = 600.0  # seconds after which past overruns no longer count
_SUCCESSES_PER_OVERRUN = 10  # successful jobs that cancel an overrun


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

    An account is restricted after three overruns. Ten successful jobs cancel one overrun. All are forgotten after ten
    minutes without an overrun and without a refused job.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _AccountOverruns] = {}  # ordered by the latest overrun

    def __len__(self) -> int:
        """Number of accounts whose overruns are remembered."""
        return len(self._accounts)

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

    def record_refusal(self, account_id: str) -> None:
        """Restarts the ten minutes of an account whose job found no slot in time: it may have no chance to overrun."""
        if self.is_restricted(account_id):
            account = self._accounts.pop(account_id)
            account.latest = self._clock()
            self._accounts[account_id] = account

    def record_success(self, account_id: str) -> None:
        """Counts a successful job."""
        account = self._accounts.get(account_id)
        if account is not None:
            account.points -= 1
            if not account.points:
                del self._accounts[account_id]

    def _is_over(self, account: _AccountOverruns) -> bool:
        return self._clock() - account.latest > _OVERRUN_MEMORY


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

    @property
    def accounts(self) -> int:
        """Number of accounts with queued or running jobs."""
        return len(self._accounts)

    def resize(self, slots: int, memory: float) -> None:
        """Changes the limits. Running jobs continue."""
        self._slots = slots
        self._memory = memory

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

    def oldest(self, *, unready: bool = False) -> float | None:
        """The earliest `queued_at` of all waiting jobs, or of those that are not ready; None if there are none."""
        jobs = (job for account in self._accounts.values() for job in account.waiting if not (unready and job.ready))
        return min((job.queued_at for job in jobs), default=None)

    def _next(self) -> QueuedJob | None:
        if self.running >= self._slots:
            return None
        for account_id, account in self._accounts.items():
            job = next((job for job in account.waiting if job.ready), None)
            if job is None or account.running >= account.limit:
                continue
            if not (self._is_restricted(account_id) and self._runs_restricted()):
                fits = not self.running or self._used_memory + job.memory <= self._memory
                return job if fits else None
        return None

    def _runs_restricted(self) -> bool:
        """Whether a restricted account runs a job."""
        return any(account.running and self._is_restricted(name) for name, account in self._accounts.items())
