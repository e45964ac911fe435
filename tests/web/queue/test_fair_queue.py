"""FairQueue: no limit is exceeded, no slot stays idle without need, no tenant starves another."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.tables.jobs import START_CHARGE
from web.services.admission.fair_queue import PATIENCE, FairQueue, Kind, QueuedTask, Standing, Tenant

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
        self.running: list[QueuedTask] = []
        self.waiting: list[QueuedTask] = []  # in order of arrival
        self.served: dict[str, float] = {}  # of tenants with jobs, by the rules without MAX_LEAD
        self.clock = 0.0

    def start_next(self) -> None:
        for job in self.queue.start_next(self.clock):
            assert job == self.first(job.tenant.id, job.kind)
            assert self.may_start(job)
            assert not self.lacks_memory(job)
            blocked = self.blocked()
            for other in self.first_jobs():
                if self.may_start(other) and other not in blocked:
                    assert self.rank(job) <= self.rank(other)
                    if self.rank(job) == self.rank(other):
                        assert self.served[job.tenant.id] <= self.served[other.tenant.id] + 1e-6
            self.waiting.remove(job)
            self.running.append(job)
            self.served[job.tenant.id] += START_CHARGE

    def standing(self, job: QueuedTask) -> Standing:
        return self.standings[job.tenant.id]

    def rank(self, job: QueuedTask) -> tuple[bool, int]:
        late = job.kind is Kind.LONG and self.clock - job.queued_at > PATIENCE
        return self.standing(job) is RESTRICTED, -1 if late and self.standing(job) is not RESTRICTED else job.kind

    def first(self, tenant: str, kind: Kind) -> QueuedTask:
        return next(job for job in self.waiting if job.tenant.id == tenant and job.kind is kind)

    def first_jobs(self) -> list[QueuedTask]:
        return [self.first(tenant, kind) for tenant, kind in {(job.tenant.id, job.kind) for job in self.waiting}]

    def may_start(self, job: QueuedTask) -> bool:
        own = [other for other in self.running if other.tenant == job.tenant]
        if len(own) >= LIMITS[job.tenant.id]:
            return False
        if self.standing(job) is RESTRICTED and any(self.standing(other) is RESTRICTED for other in self.running):
            return False
        alike = [other for other in self.running if other.kind is job.kind]
        background = sum(other.background for other in self.running)
        shared = 2 if self.requests_come else SLOTS
        slots = {RESTRICTED: 1, UNPROVEN: SLOTS - self.keeps_slot, PROVEN: SLOTS}
        if job.kind is Kind.SHORT and any(other.misjudged for other in own):
            return False
        if job.kind is Kind.LONG:
            slots[PROVEN] = SLOTS - min(background, shared)
        if job.kind is Kind.BACKGROUND:
            if background + sum(other.kind is Kind.LONG for other in self.running) >= SLOTS:
                return False
            slots = {standing: min(shared, count) for standing, count in slots.items()}
            slots[PROVEN] = min(shared, slots[UNPROVEN]) + self.keeps_slot
        return all(
            sum(self.standing(other) <= standing for other in alike) < slots[standing]
            for standing in Standing
            if standing >= self.standing(job)
        )

    def lacks_memory(self, job: QueuedTask) -> bool:
        """Whether the job is in the background and does not fit into the half of the memory that these have."""
        used = [other.memory for other in self.running if other.background]
        return job.background and bool(used) and sum(used) + job.memory > MEMORY / 2

    def blocked(self) -> list[QueuedTask]:
        """The jobs that may wait for memory of the background: no smaller one must pass one that does."""
        background = [job for job in self.first_jobs() if job.background]
        return background if any(self.may_start(job) and self.lacks_memory(job) for job in background) else []

    def memory(self) -> int:
        return sum(job.memory for job in self.running)

    @rule(
        tenant=st.sampled_from(sorted(LIMITS)), memory=st.sampled_from([0, 1, 4, 9, 25]), kind=st.sampled_from([*Kind])
    )
    def add(self, tenant: str, memory: int, kind: Kind) -> None:
        self.clock += 1
        job = QueuedTask(Tenant(tenant, LIMITS[tenant]), memory, self.clock, kind)
        if all(other.tenant != job.tenant for other in (*self.running, *self.waiting)):
            present = {other.tenant.id for other in (*self.running, *self.waiting)}
            running = sum(other.expected for other in self.running)
            mean = (sum(self.served[name] for name in present) - running) / max(len(present), 1)
            self.served[tenant] = max(self.served.get(tenant, 0.0), mean)
        self.queue.add(job)
        self.waiting.append(job)
        self.start_next()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), used=st.sampled_from([0.0, 0.1, START_CHARGE]))
    def end(self, data: st.DataObject, used: float) -> None:
        job = data.draw(st.sampled_from(self.running))
        job.used = used
        self.served[job.tenant.id] += used - START_CHARGE
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

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def lengthen(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running))
        if job.kind is Kind.SHORT:
            assert self.queue.lengthen(job)
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

    @invariant()
    def limits_hold(self) -> None:
        for kind, most in ((Kind.SHORT, SLOTS), (Kind.LONG, SLOTS), (Kind.BACKGROUND, SLOTS)):
            assert sum(job.kind is kind and not job.misjudged for job in self.running) <= most
        assert all(sum(job.tenant.id == tenant for job in self.running) <= limit for tenant, limit in LIMITS.items())
        assert self.memory() <= MEMORY or len(self.running) == 1

    @invariant()
    def no_job_waits_without_need(self) -> None:
        blocked = self.blocked()
        eligible = [job for job in self.first_jobs() if self.may_start(job) and job not in blocked]
        if eligible:
            assert self.running
            assert any(self.memory() + job.memory > MEMORY for job in (*eligible, *blocked))


Jobs.TestCase.settings = settings(stateful_step_count=60)
TestJobs = Jobs.TestCase


def add(
    queue: FairQueue, tenant: str, memory: int = 0, max_jobs: int = 2, kind: Kind = Kind.LONG, expected: float = 1.0
) -> QueuedTask:
    job = QueuedTask(Tenant(tenant, max_jobs), memory, queued_at=0, kind=kind, expected=expected)
    queue.add(job)
    return job


def started(queue: FairQueue) -> str:
    return "".join(job.tenant.id for job in queue.start_next(0))


def end(queue: FairQueue, *jobs: QueuedTask, used: float = 1.0, now: float = 0) -> list[QueuedTask]:
    """Ends jobs. Returns those that start then."""
    for job in jobs:
        job.used = used
        queue.remove(job)
    return queue.start_next(now)


def with_standings(slots: int, **standings: Standing) -> FairQueue:
    """A queue that keeps a slot, whose tenants have these standings."""
    return FairQueue(slots, MEMORY, lambda tenant: standings[tenant.id])


def wait(queue: FairQueue, tenant: str, max_jobs: int = 2, kind: Kind = Kind.LONG) -> float:
    return queue.expected_wait(Tenant(tenant, max_jobs), kind)


def names(jobs: Iterable[QueuedTask]) -> str:
    return "".join(job.tenant.id for job in jobs)


def test_small_jobs_do_not_pass_a_large_one() -> None:
    """Short ones do for a while."""
    queue = FairQueue(2, MEMORY)
    small, other = add(queue, "a", 5), add(queue, "b", 4)
    queue.start_next(0)
    add(queue, "c", 25)
    for tenant in "def":
        add(queue, tenant, 1)
        add(queue, tenant, 1, kind=Kind.SHORT)
    first = queue.start_next(PATIENCE)
    second = end(queue, small, now=PATIENCE)
    assert (names(first), names(second)) == ("d", "e")
    assert end(queue, *first, *second, now=PATIENCE + 1) == []
    assert names(end(queue, other, now=PATIENCE + 1)) == "c"


def test_short_jobs_start_beside_long_ones() -> None:
    queue = FairQueue(2, MEMORY)
    for tenant in "abc":
        add(queue, tenant)
    assert started(queue) == "ab"
    short = [add(queue, tenant, kind=Kind.SHORT) for tenant in "cde"]
    assert started(queue) == "cd"
    assert (wait(queue, "f"), wait(queue, "f", kind=Kind.SHORT)) == (0.5, 0.5)
    assert names(end(queue, short[0])) == "e"


def test_a_short_job_that_takes_long_frees_its_slot_for_others() -> None:
    """Not for its own tenant. Long jobs start when there are fewer than slots again."""
    queue = FairQueue(1, MEMORY)
    long, misjudged = add(queue, "a"), add(queue, "b", kind=Kind.SHORT)
    assert started(queue) == "ba"
    add(queue, "b", kind=Kind.SHORT)
    assert queue.lengthen(misjudged)
    assert started(queue) == ""
    add(queue, "c", kind=Kind.SHORT)
    add(queue, "d")
    assert started(queue) == "c"
    assert end(queue, long) == []
    assert names(end(queue, misjudged)) == "d"
    assert not queue.lengthen(misjudged)


def test_the_expected_wait_is_the_work_of_those_who_start_before() -> None:
    queue = FairQueue(2, MEMORY)
    for tenant in "aa":
        add(queue, tenant)
    queue.start_next(0)
    for _ in range(40):
        add(queue, "a", expected=0.1)
    assert wait(queue, "b", kind=Kind.SHORT) == 0
    assert wait(queue, "b") < 0.5
    assert wait(queue, "a") == pytest.approx(2)
    assert wait(queue, "a", max_jobs=1) == pytest.approx(4)
    add(queue, "b", expected=8)
    assert wait(queue, "c") == pytest.approx((8 + 0.1) / 2, abs=1)


def test_restricted_tenants_share_one_slot() -> None:
    queue = with_standings(3, a=RESTRICTED, b=RESTRICTED, c=PROVEN)
    for tenant in "aabb":
        add(queue, tenant, max_jobs=8)
    running = [add(queue, "c"), add(queue, "c")]
    assert started(queue) == "cca"
    add(queue, "a", kind=Kind.SHORT)
    assert end(queue, *running) == []
    assert wait(queue, "c") == 0
    assert wait(queue, "a", 8) == 3


def test_a_slot_of_each_kind_is_kept_for_proven_tenants() -> None:
    queue = with_standings(3, a=UNPROVEN, b=UNPROVEN, c=RESTRICTED, d=PROVEN)
    for kind in (Kind.SHORT, Kind.LONG):
        for tenant in "aabb":
            add(queue, tenant, max_jobs=8, kind=kind)
        assert started(queue) == "ab"
        for tenant in "cdd":
            add(queue, tenant, max_jobs=8, kind=kind)
        assert started(queue) == "d"


def test_no_slot_is_kept_of_one_or_without_proven_tenants() -> None:
    only_slot = with_standings(1, a=UNPROVEN)
    add(only_slot, "a")
    assert started(only_slot) == "a"
    nobody_proven = FairQueue(2, MEMORY, lambda _tenant: UNPROVEN, keeps_slot=lambda: False)
    for tenant in "ab":
        add(nobody_proven, tenant)
    assert started(nobody_proven) == "ab"


def test_a_share_of_what_a_tenant_may_run_is_rounded_up() -> None:
    queue = FairQueue(8, MEMORY)
    queue.resize(8, MEMORY, 2)
    for _ in range(4):
        add(queue, "a", max_jobs=3)
    assert started(queue) == "aa"


def test_without_a_free_slot_tenants_are_not_compared() -> None:
    asked: list[Tenant] = []

    def standing(tenant: Tenant) -> Standing:
        asked.append(tenant)
        return PROVEN

    queue = FairQueue(1, MEMORY, standing)
    for tenant in "abc":
        add(queue, tenant)
    assert started(queue) == "a"
    asked.clear()
    assert started(queue) == ""
    assert {tenant.id for tenant in asked} == {"a"}  # which runs
