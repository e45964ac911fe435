"""FairQueue: no limit is exceeded, no slot stays idle without need, no account starves another."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from web.services.fair_queue import FairQueue, QueuedJob

SLOTS, MEMORY = 3, 10
LIMITS = {"a": 1, "b": 2, "c": 3, "d": 2}


class Jobs(RuleBasedStateMachine):
    """Jobs arrive, end and are cancelled in any order; the model keeps plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.restricted: set[str] = set()
        self.queue = FairQueue(SLOTS, MEMORY, lambda account: account in self.restricted)
        self.running: list[QueuedJob] = []
        self.waiting: list[QueuedJob] = []  # in order of arrival
        self.passed: dict[QueuedJob, list[str]] = {}  # starts of other accounts while the job was its account's first
        self.clock = 0.0

    def start_next(self) -> None:
        first_jobs = self.first_jobs()
        for job in self.queue.start_next(self.clock):
            assert job == self.first(job.account_id)
            for other in first_jobs:
                if other.account_id != job.account_id and other in self.waiting and self.may_start(other):
                    self.passed.setdefault(other, []).append(job.account_id)
            self.waiting.remove(job)
            self.running.append(job)
            first_jobs = self.first_jobs()

    def first(self, account: str) -> QueuedJob:
        return next(job for job in self.waiting if job.account_id == account)

    def first_jobs(self) -> list[QueuedJob]:
        return [self.first(account) for account in {job.account_id for job in self.waiting}]

    def may_start(self, job: QueuedJob) -> bool:
        if job.account_id in self.restricted and self.running_of(*self.restricted):
            return False
        return self.running_of(job.account_id) < LIMITS[job.account_id]

    def running_of(self, *accounts: str) -> int:
        return sum(job.account_id in accounts for job in self.running)

    def memory(self) -> int:
        return sum(job.memory for job in self.running)

    @rule(account=st.sampled_from(sorted(LIMITS)), memory=st.sampled_from([0, 1, 4, 9, 25]))
    def add(self, account: str, memory: int) -> None:
        self.clock += 1
        job = QueuedJob(account, memory, self.clock)
        self.queue.add(job, LIMITS[account])
        self.waiting.append(job)
        self.start_next()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running))
        self.running.remove(job)
        self.queue.remove(job)
        self.start_next()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(job)
        self.queue.remove(job)
        self.start_next()

    @rule(account=st.sampled_from(sorted(LIMITS)))
    def restrict(self, account: str) -> None:
        self.restricted ^= {account}
        self.start_next()

    @invariant()
    def counts_are_correct(self) -> None:
        assert (self.queue.running, self.queue.waiting) == (len(self.running), len(self.waiting))
        assert self.queue.accounts == len({job.account_id for job in (*self.running, *self.waiting)})
        assert self.queue.oldest() == min((job.queued_at for job in self.waiting), default=None)

    @invariant()
    def limits_hold(self) -> None:
        assert len(self.running) <= SLOTS
        assert all(self.running_of(account) <= limit for account, limit in LIMITS.items())
        assert self.memory() <= MEMORY or len(self.running) == 1

    @invariant()
    def no_job_waits_without_need(self) -> None:
        eligible = [job for job in self.first_jobs() if self.may_start(job)]
        if eligible and len(self.running) < SLOTS:
            assert self.running
            assert any(self.memory() + job.memory > MEMORY for job in eligible)

    @invariant()
    def no_account_passes_a_job_twice(self) -> None:
        for job in self.waiting:
            accounts = self.passed.get(job, [])
            assert len(accounts) == len(set(accounts)), f"{job} was passed by {accounts}"


Jobs.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestJobs = Jobs.TestCase


def start_order(queue: FairQueue, *running: QueuedJob) -> str:
    """Ends the running jobs one after the other; returns the accounts in the order of their starts."""
    order, active = "", list(running)
    while active:
        queue.remove(active.pop(0))
        started = queue.start_next(0)
        order += "".join(job.account_id for job in started)
        active += started
    return order


def add(queue: FairQueue, account: str, memory: int = 0, limit: int = 2) -> QueuedJob:
    job = QueuedJob(account, memory, queued_at=0)
    queue.add(job, limit)
    return job


def test_accounts_alternate() -> None:
    queue = FairQueue(1, MEMORY)
    running = add(queue, "a")
    queue.start_next(0)
    for account in "aaaabbc":
        add(queue, account)
    assert start_order(queue, running) == "abcabaa"


def test_small_jobs_do_not_pass_a_large_one() -> None:
    queue = FairQueue(2, MEMORY)
    small, other = add(queue, "a", 5), add(queue, "b", 5)
    queue.start_next(0)
    add(queue, "c", 25)
    for account in "dede":
        add(queue, account, 1)
    queue.remove(small)
    assert queue.start_next(0) == []
    assert start_order(queue, other) == "cdede"


def test_jobs_ahead_counts_the_starts_of_other_accounts() -> None:
    queue = FairQueue(2, MEMORY)
    for account in "aa":
        add(queue, account)
    queue.start_next(0)
    for _ in range(40):
        add(queue, "a")
    add(queue, "b")
    assert queue.jobs_ahead("c", 2) == 1.5  # one of a, the one of b, and the new one, in two slots
    assert queue.jobs_ahead("b", 2) == 2  # two of a, the waiting one, and the new one
    assert queue.jobs_ahead("a", 2) == 21
    assert queue.jobs_ahead("a", 1) == 41


def test_restricted_accounts_share_one_slot() -> None:
    queue = FairQueue(3, MEMORY, "ab".__contains__)
    for account in "aabbcc":
        add(queue, account)
    running = queue.start_next(0)
    assert "".join(job.account_id for job in running) == "acc"
    queue.remove(running[0])
    assert [job.account_id for job in queue.start_next(0)] == ["b"]
    assert queue.running == 3


def test_restricted_accounts_do_not_delay_others() -> None:
    queue = FairQueue(2, MEMORY, "ab".__contains__)
    for account in "aaabbb":
        add(queue, account)
    queue.start_next(0)
    assert queue.jobs_ahead("a", 8) == 6
    assert queue.jobs_ahead("c", 8) == 0
    for account in "ccc":
        add(queue, account)
    queue.start_next(0)
    assert queue.jobs_ahead("c", 8) == 1.5
