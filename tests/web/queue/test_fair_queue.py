"""FairQueue: no limit is exceeded, no slot stays idle without need, no tenant starves another."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from web.services.fair_queue import FairQueue, QueuedJob, Standing, Tenant

SLOTS, MEMORY = 3, 10
LIMITS = {"a": 1, "b": 2, "c": 3, "d": 2}
RESTRICTED, UNPROVEN, PROVEN = Standing


class Jobs(RuleBasedStateMachine):
    """Jobs arrive, end and are cancelled in any order; the model keeps plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.standings = dict.fromkeys(LIMITS, PROVEN)
        self.keeps_slot = self.requests_come = True
        sharing = (lambda tenant: self.standings[tenant.id], lambda: self.keeps_slot, lambda: self.requests_come)
        self.queue = FairQueue(SLOTS, MEMORY, *sharing)
        self.running: list[QueuedJob] = []
        self.waiting: list[QueuedJob] = []  # in order of arrival
        self.passed: dict[QueuedJob, list[str]] = {}  # starts of others since its tenant was served
        self.clock = 0.0

    def start_next(self) -> None:
        first_jobs = self.first_jobs()
        for job in self.queue.start_next(self.clock):
            assert job == self.first(job.tenant.id, background=job.background)
            assert self.may_start(job)
            assert not self.lacks_memory(job)
            blocked = self.blocked()
            for other in first_jobs:
                if other.tenant != job.tenant and other in self.waiting and self.may_start(other):
                    assert self.rank(job) >= self.rank(other) or other in blocked
                    if RESTRICTED not in (self.standing(other), self.standing(job)) and self.rank(job) == self.rank(
                        other
                    ):
                        self.passed.setdefault(other, []).append(job.tenant.id)
            self.waiting.remove(job)
            self.running.append(job)
            for other in self.waiting:
                if other.tenant == job.tenant:
                    self.passed.pop(other, None)
            first_jobs = self.first_jobs()

    def standing(self, job: QueuedJob) -> Standing:
        return self.standings[job.tenant.id]

    def rank(self, job: QueuedJob) -> int:
        return 0 if self.standing(job) is RESTRICTED else 1 if job.background else 2

    def first(self, tenant: str, *, background: bool) -> QueuedJob:
        return next(job for job in self.waiting if job.tenant.id == tenant and job.background is background)

    def first_jobs(self) -> list[QueuedJob]:
        lines = {(job.tenant.id, job.background) for job in self.waiting}
        return [self.first(tenant, background=background) for tenant, background in lines]

    def may_start(self, job: QueuedJob) -> bool:
        if self.running_of(job.tenant.id) >= LIMITS[job.tenant.id]:
            return False
        if self.standing(job) is RESTRICTED and any(self.standing(other) is RESTRICTED for other in self.running):
            return False
        requests = [other for other in self.running if not other.background]
        background, shared = len(self.running) - len(requests), 2 if self.requests_come else SLOTS
        if job.background:
            return background < shared and len(self.running) < SLOTS
        slots = {RESTRICTED: 1, UNPROVEN: SLOTS - self.keeps_slot, PROVEN: SLOTS - min(background, shared)}
        return all(
            sum(self.standing(other) <= standing for other in requests) < slots[standing]
            for standing in Standing
            if standing >= self.standing(job)
        )

    def lacks_memory(self, job: QueuedJob) -> bool:
        """Whether the job is in the background and does not fit into the half of the memory that these have."""
        used = [other.memory for other in self.running if other.background]
        return job.background and bool(used) and sum(used) + job.memory > MEMORY / 2

    def blocked(self) -> list[QueuedJob]:
        """The jobs that may wait for memory of the background: no smaller one must pass one that does."""
        background = [job for job in self.first_jobs() if job.background]
        return background if any(self.may_start(job) and self.lacks_memory(job) for job in background) else []

    def running_of(self, tenant: str) -> int:
        return sum(job.tenant.id == tenant for job in self.running)

    def memory(self) -> int:
        return sum(job.memory for job in self.running)

    @rule(tenant=st.sampled_from(sorted(LIMITS)), memory=st.sampled_from([0, 1, 4, 9, 25]), background=st.booleans())
    def add(self, tenant: str, memory: int, background: bool) -> None:
        self.clock += 1
        job = QueuedJob(Tenant(tenant, LIMITS[tenant]), memory, self.clock, background=background)
        self.queue.add(job)
        self.waiting.append(job)
        self.start_next()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running))
        self.running.remove(job)
        self.queue.remove(job)
        for waiting in self.waiting:
            if waiting.tenant == job.tenant:  # it has just been served
                self.passed.pop(waiting, None)
        self.start_next()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(job)
        self.queue.remove(job)
        self.start_next()

    @rule(tenant=st.sampled_from(sorted(LIMITS)), standing=st.sampled_from(Standing))
    def change_standing(self, tenant: str, standing: Standing) -> None:
        self.standings[tenant] = standing
        self.start_next()

    @rule()
    def change_kept_slot(self) -> None:
        self.keeps_slot = not self.keeps_slot
        self.start_next()

    @rule()
    def change_requests(self) -> None:
        self.requests_come = not self.requests_come
        self.start_next()

    @invariant()
    def counts_are_correct(self) -> None:
        assert (self.queue.running, self.queue.waiting) == (len(self.running), len(self.waiting))
        assert self.queue.tenants == len({job.tenant for job in (*self.running, *self.waiting)})
        requests = [job for job in self.waiting if not job.background]
        assert self.queue.oldest() == min((job.queued_at for job in requests), default=None)
        assert self.queue.requests == len(requests) + sum(not job.background for job in self.running)
        assert 0 <= self.queue.free_for_background() <= SLOTS

    @invariant()
    def limits_hold(self) -> None:
        assert len(self.running) <= SLOTS + SLOTS // 2
        assert sum(not job.background for job in self.running) <= SLOTS
        assert len(self.running) <= SLOTS or any(job.background for job in self.running)
        assert all(self.running_of(tenant) <= limit for tenant, limit in LIMITS.items())
        assert self.memory() <= MEMORY or len(self.running) == 1

    @invariant()
    def no_job_waits_without_need(self) -> None:
        blocked = self.blocked()
        eligible = [job for job in self.first_jobs() if self.may_start(job) and job not in blocked]
        if eligible:
            assert self.running
            assert any(self.memory() + job.memory > MEMORY for job in (*eligible, *blocked))

    @invariant()
    def no_tenant_passes_a_job_twice(self) -> None:
        for job in self.waiting:
            tenants = self.passed.get(job, [])
            assert len(tenants) == len(set(tenants)), f"{job} was passed by {tenants}"


Jobs.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestJobs = Jobs.TestCase


def start_order(queue: FairQueue, *running: QueuedJob) -> str:
    """Ends the running jobs one after the other; returns the tenants in the order of their starts."""
    order, active = "", list(running)
    while active:
        queue.remove(active.pop(0))
        started = queue.start_next(0)
        order += "".join(job.tenant.id for job in started)
        active += started
    return order


def add(queue: FairQueue, tenant: str, memory: int = 0, max_jobs: int = 2) -> QueuedJob:
    job = QueuedJob(Tenant(tenant, max_jobs), memory, queued_at=0)
    queue.add(job)
    return job


def started(queue: FairQueue) -> str:
    return "".join(job.tenant.id for job in queue.start_next(0))


def wait(queue: FairQueue, tenant: str, max_jobs: int = 2, **seconds: float) -> float:
    """The expected wait of a new job, if the jobs of each tenant take a second or those `seconds`."""
    return queue.expected_wait(Tenant(tenant, max_jobs), lambda each: seconds.get(each.id, 1.0))


def with_standings(slots: int, **standings: Standing) -> FairQueue:
    """A queue that keeps a slot, whose tenants have these standings."""
    return FairQueue(slots, MEMORY, lambda tenant: standings[tenant.id])


def test_tenants_alternate() -> None:
    queue = FairQueue(1, MEMORY)
    running = add(queue, "a")
    queue.start_next(0)
    for tenant in "aaaabbc":
        add(queue, tenant)
    assert start_order(queue, running) == "bcabaaa"


def test_small_jobs_do_not_pass_a_large_one() -> None:
    queue = FairQueue(2, MEMORY)
    small, other = add(queue, "a", 5), add(queue, "b", 5)
    queue.start_next(0)
    add(queue, "c", 25)
    for tenant in "dede":
        add(queue, tenant, 1)
    queue.remove(small)
    assert queue.start_next(0) == []
    assert start_order(queue, other) == "cdeed"


def test_the_expected_wait_counts_the_starts_of_other_tenants() -> None:
    queue = FairQueue(2, MEMORY)
    for tenant in "aa":
        add(queue, tenant)
    queue.start_next(0)
    for _ in range(40):
        add(queue, "a")
    add(queue, "b")
    assert wait(queue, "c") == 1.5  # one of a, the one of b, and the new one, in two slots
    assert wait(queue, "b") == 2  # two of a, the waiting one, and the new one
    assert wait(queue, "a") == 21
    assert wait(queue, "a", max_jobs=1) == 41


def test_the_expected_wait_is_the_time_of_the_jobs_of_each_tenant() -> None:
    queue = FairQueue(2, MEMORY)
    for tenant in "aa":
        add(queue, tenant)
    queue.start_next(0)
    for _ in range(200):
        add(queue, "a")
    add(queue, "b")
    assert wait(queue, "a", a=0.01, b=4) == pytest.approx((201 * 0.01 + 4) / 2)
    assert wait(queue, "c", a=0.01, b=4, c=2) == pytest.approx((0.01 + 4 + 2) / 2)


def test_restricted_tenants_share_one_slot() -> None:
    queue = with_standings(3, a=RESTRICTED, b=RESTRICTED, c=PROVEN)
    for tenant in "aabbcc":
        add(queue, tenant)
    running = queue.start_next(0)
    assert "".join(job.tenant.id for job in running) == "cca"
    queue.remove(running[2])
    assert started(queue) == "b"
    assert queue.running == 3


def test_restricted_tenants_start_when_no_other_can() -> None:
    queue = with_standings(1, a=RESTRICTED, b=UNPROVEN)
    running = add(queue, "b")
    queue.start_next(0)
    for tenant in "aabb":
        add(queue, tenant)
    assert start_order(queue, running) == "bbaa"


def test_restricted_tenants_do_not_delay_others() -> None:
    queue = with_standings(2, a=RESTRICTED, b=RESTRICTED, c=UNPROVEN)
    for tenant in "aaabbb":
        add(queue, tenant, max_jobs=8)
    queue.start_next(0)
    assert wait(queue, "a", 8) == 6
    assert wait(queue, "c", 8) == 0


def test_a_slot_is_kept_for_proven_tenants() -> None:
    queue = with_standings(3, a=UNPROVEN, b=UNPROVEN, c=RESTRICTED, d=PROVEN)
    for tenant in "aabbc":
        add(queue, tenant)
    assert started(queue) == "ab"
    for tenant in "dd":
        add(queue, tenant)
    assert started(queue) == "d"
    assert wait(queue, "d") == 2 / 3  # the unproven ones that wait do not count


def test_no_slot_is_kept_of_one_or_without_proven_tenants() -> None:
    only_slot = with_standings(1, a=UNPROVEN)
    add(only_slot, "a")
    assert started(only_slot) == "a"
    nobody_proven = FairQueue(2, MEMORY, lambda _tenant: UNPROVEN, keeps_slot=lambda: False)
    for tenant in "ab":
        add(nobody_proven, tenant)
    assert started(nobody_proven) == "ab"


def add_background(queue: FairQueue, *tenants: str) -> None:
    for tenant in tenants:
        queue.add(QueuedJob(Tenant(tenant, 4), 0, queued_at=0, background=True))


def test_requests_start_before_the_background() -> None:
    queue = FairQueue(1, MEMORY)
    running = add(queue, "b")
    queue.start_next(0)
    add_background(queue, *"ac")
    add(queue, "b")
    add(queue, "a")
    assert wait(queue, "d") == 3  # the background does not count
    assert start_order(queue, running) == "abca"
    restricted = with_standings(1, a=RESTRICTED, b=PROVEN)
    add(restricted, "a")
    add_background(restricted, "a", "b")
    assert start_order(restricted, *restricted.start_next(0)) == "aa"


def test_requests_start_beside_a_background_that_uses_more_than_its_slots() -> None:
    requests_come = False
    queue = FairQueue(2, MEMORY, requests_come=lambda: requests_come)
    add_background(queue, "a", "b")
    assert len(queue.start_next(0)) == 2
    requests_come = True
    add(queue, "c")
    add(queue, "d")
    assert started(queue) == "c"
    assert queue.running == 3


def test_without_a_free_slot_tenants_are_not_compared() -> None:
    asked: list[Tenant] = []

    def standing(tenant: Tenant) -> Standing:
        asked.append(tenant)
        return PROVEN

    queue = FairQueue(1, MEMORY, standing)
    for tenant in "ab":
        add(queue, tenant)
    assert started(queue) == "a"
    asked.clear()
    assert started(queue) == ""
    assert not asked


def test_a_new_tenant_waits_for_one_job_of_another() -> None:
    """Another one that waits, too, has been served more recently: its job has just ended."""
    queue = FairQueue(1, MEMORY)
    running = add(queue, "a")
    queue.start_next(0)
    for tenant in "aaab":
        add(queue, tenant)
    queue.remove(running)
    assert started(queue) == "b"
