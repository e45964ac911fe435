"""The line: nobody above a limit, nobody idle without need, nobody passed by for long."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from web.services.job_queue import FairQueue, QueuedJob

SLOTS, MEMORY = 3, 10
LIMITS = {"a": 1, "b": 2, "c": 3, "d": 2}


class Clients(RuleBasedStateMachine):
    """Come, finish and go in any order; the model keeps plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.line = FairQueue(SLOTS, MEMORY)
        self.running: list[QueuedJob] = []
        self.waiting: list[QueuedJob] = []  # in the order they came
        self.passed: dict[QueuedJob, list[str]] = {}  # the turns of others while it was the first of its account
        self.clock = 0.0

    def call(self) -> None:
        free = self.first_ones()
        for place in self.line.call(self.clock):
            assert place == self.first(place.account_id)
            for other in free:
                if other.account_id != place.account_id and other in self.waiting and self.is_below_limit(other):
                    self.passed.setdefault(other, []).append(place.account_id)
            self.waiting.remove(place)
            self.running.append(place)
            free = self.first_ones()

    def first(self, account: str) -> QueuedJob:
        return next(place for place in self.waiting if place.account_id == account)

    def first_ones(self) -> list[QueuedJob]:
        return [self.first(account) for account in {place.account_id for place in self.waiting}]

    def is_below_limit(self, place: QueuedJob) -> bool:
        return self.has_running(place.account_id) < LIMITS[place.account_id]

    def has_running(self, account: str) -> int:
        return sum(place.account_id == account for place in self.running)

    def memory(self) -> int:
        return sum(place.memory for place in self.running)

    @rule(account=st.sampled_from(sorted(LIMITS)), memory=st.sampled_from([0, 1, 4, 9, 25]))
    def comes(self, account: str, memory: int) -> None:
        self.clock += 1
        place = QueuedJob(account, memory, self.clock)
        self.line.enter(place, LIMITS[account])
        self.waiting.append(place)
        self.call()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.running))
        self.running.remove(place)
        self.line.leave(place)
        self.call()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(place)
        self.line.leave(place)
        self.call()

    @invariant()
    def counts_are_true(self) -> None:
        assert (self.line.running, self.line.waiting) == (len(self.running), len(self.waiting))
        assert self.line.oldest() == min((place.since for place in self.waiting), default=None)

    @invariant()
    def no_bound_is_passed(self) -> None:
        assert len(self.running) <= SLOTS
        assert all(self.has_running(account) <= limit for account, limit in LIMITS.items())
        assert self.memory() <= MEMORY or len(self.running) == 1

    @invariant()
    def nobody_waits_without_need(self) -> None:
        eligible = [place for place in self.first_ones() if self.is_below_limit(place)]
        if eligible and len(self.running) < SLOTS:
            assert self.running
            assert any(self.memory() + place.memory > MEMORY for place in eligible)

    @invariant()
    def nobody_is_passed_twice_by_an_account(self) -> None:
        for place in self.waiting:
            job_queue = self.passed.get(place, [])
            assert len(job_queue) == len(set(job_queue)), f"{place} was passed by {job_queue}"


Clients.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestClients = Clients.TestCase


def ran(line: FairQueue, *running: QueuedJob) -> str:
    """Lets those end that run, one after the other; the accounts in the order in which they had turns."""
    job_queue, at_work = "", list(running)
    while at_work:
        line.leave(at_work.pop(0))
        called = line.call(0)
        job_queue += "".join(place.account_id for place in called)
        at_work += called
    return job_queue


def entered(line: FairQueue, account: str, memory: int = 0, limit: int = 2) -> QueuedJob:
    place = QueuedJob(account, memory, since=0)
    line.enter(place, limit)
    return place


def test_accounts_take_turns() -> None:
    line = FairQueue(1, MEMORY)
    running = entered(line, "a")
    line.call(0)
    for account in "aaaabbc":
        entered(line, account)
    assert ran(line, running) == "abcabaa"


def test_small_ones_do_not_pass_a_large_one() -> None:
    line = FairQueue(2, MEMORY)
    small, other = entered(line, "a", 5), entered(line, "b", 5)
    line.call(0)
    entered(line, "c", 25)
    for account in "dede":
        entered(line, account, 1)
    line.leave(small)
    assert line.call(0) == []
    assert ran(line, other) == "cdede"


def test_rounds_count_the_turns_of_others_before_ones_own() -> None:
    line = FairQueue(2, MEMORY)
    for account in "aa":
        entered(line, account)
    line.call(0)
    for _ in range(40):
        entered(line, "a")
    entered(line, "b")
    assert line.rounds("c", 2) == 1.5  # one of a, the one of b, and itself, in two slots
    assert line.rounds("b", 2) == 2  # two of a, the one that waits, and itself
    assert line.rounds("a", 2) == 21
    assert line.rounds("a", 1) == 41
