"""Ledger: random histories with crashes, checked against a simple model, and races of several processes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar, Literal, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from storage.database import Database, Transaction
from storage.errors import HoldLost, NoCredits
from storage.ids import new_id
from storage.tables import accounts, idempotency, ledger, ledger_audit, models, servers
from storage.tables.accounts import StoredAccount
from storage.tables.idempotency import Claim, InProgress, Replay, StoredResponse
from storage.tables.ledger import Hold, ServerInstance
from storage.tables.usage import UsageRecord
from tests.support.samples.storage import OWNER, USE, Clock, lose, open_account, settle_and
from tests.support.servers.storage_processes import StorageProcess, race

pytestmark = pytest.mark.both_databases
Ending = Literal["succeeds", "fails", "crashes", "crashes while it settles"]
Attempt = Callable[[Database, str], Awaitable[object]]
# Concurrent calls.
_RESERVATIONS = 50
_REPORTS = 8


class Crash(Exception):
    """Simulates the end of the process in the middle of a transaction."""


def crash(_transaction: Transaction) -> None:
    raise Crash


def look(transaction: Transaction, account: str) -> tuple[tuple[str, ...], StoredAccount, set[str]]:
    """Returns the violations, the account, and the refs of its charges."""
    query = models.Entry.select().where((models.Entry.account == account) & (models.Entry.kind == "charge"))
    charges = {row.ref for row in transaction.all(query)}
    return ledger_audit.check(transaction, account), accounts.get(transaction, account), charges


class Histories(RuleBasedStateMachine):
    """One account and one server that may crash."""

    holds: Bundle[Hold] = Bundle("holds")

    address: ClassVar[str]  # all histories share a database

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.boot = Clock(), 0
        self.database = Database(self.address, clock=self.clock)
        self.account = open_account(self.database, 5).id
        self.balance, self.used, self.purchased = 5, 0, 0
        self.open: dict[str, int] = {}  # amounts by hold
        self.refs: set[str] = set()
        self.charges: set[str] = set()
        self.answered: set[str] = set()

    def teardown(self) -> None:
        lose(self.database, self.owner)
        self.database.run_blocking(ledger.release_expired)  # later histories start without open holds
        self.database.close()

    @property
    def owner(self) -> ServerInstance:
        return ServerInstance(self.account, str(self.boot))

    @rule(kind=st.sampled_from(["grant", "purchase"]), amount=st.integers(1, 10), ref=st.sampled_from("abc"))
    def credits_come_in(self, kind: ledger.Income, amount: int, ref: str) -> None:
        credited = self.database.run_blocking(ledger.credit, self.account, kind, amount, f"{ref} of {self.account}")
        assert credited.added == (ref not in self.refs)
        if credited.added:
            self.refs.add(ref)
            self.balance += amount
            self.purchased += amount if kind == "purchase" else 0
        assert credited.balance == self.balance

    @rule(target=holds, amount=st.integers(1, 6))
    def reserve(self, amount: int) -> Hold | MultipleResults[Hold]:
        if amount > self.balance:
            with pytest.raises(NoCredits) as caught:
                self.database.run_blocking(ledger.reserve, self.account, amount, self.owner)
            assert caught.value.balance == self.balance
            return multiple()
        hold = self.database.run_blocking(ledger.reserve, self.account, amount, self.owner)
        self.balance -= amount
        assert hold.balance == self.balance
        self.open[hold.id] = amount
        return hold

    @rule(hold=holds)
    def settle(self, hold: Hold) -> None:
        if hold.id not in self.open:
            with pytest.raises(HoldLost):
                self.database.run_blocking(ledger.settle, hold, USE)
            return
        assert self.database.run_blocking(ledger.settle, hold, USE) == self.balance
        self.used += self.open.pop(hold.id)
        self.charges.add(hold.id)

    @rule(hold=holds, failed=st.sampled_from([USE, None]))
    def release(self, hold: Hold, failed: UsageRecord | None) -> None:
        self.balance += self.open.pop(hold.id, 0)
        assert self.database.run_blocking(ledger.release, self.account, hold.id, failed) == self.balance

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def sweep(self) -> None:
        self.database.run_blocking(servers.beat, self.owner)
        self.database.run_blocking(servers.give_back)
        assert self.database.run_blocking(ledger.release_expired) == 0

    @rule()
    def crash_and_recover(self) -> None:
        self.database.close()
        self.database = Database(self.address, clock=self.clock)
        self.boot += 1
        self.database.run_blocking(servers.beat, self.owner)
        self.database.run_blocking(servers.give_back)
        assert self.database.run_blocking(ledger.release_expired) == len(self.open)
        self.balance += sum(self.open.values())
        self.open.clear()
        assert self.database.run_blocking(accounts.get, self.account).credits_held == 0

    @rule(hold=holds)
    def crash_while_settling(self, hold: Hold) -> None:
        with pytest.raises(Crash if hold.id in self.open else HoldLost):
            self.database.run_blocking(settle_and, hold, crash)
        self.crash_and_recover()

    @rule(key=st.sampled_from("xyz"), ending=st.sampled_from(get_args(Ending)))
    def ask_with_a_key(self, key: str, ending: Ending) -> None:
        attempt = idempotency.new_claim(self.account, "/convert", key, self.owner)
        claim = self.database.run_blocking(idempotency.begin, attempt, "f")
        assert isinstance(claim, Replay) == (key in self.answered)
        assert not isinstance(claim, InProgress)
        if not isinstance(claim, Claim):
            return
        hold = self.reserve(1)
        if not isinstance(hold, Hold):
            self.database.run_blocking(idempotency.abandon, claim)
        else:
            self._end(claim, hold, ending)

    def _end(self, claim: Claim, hold: Hold, ending: Ending) -> None:
        if ending == "succeeds":
            finish = partial(idempotency.finish, claim=claim, stored=StoredResponse(200))
            self.database.run_blocking(settle_and, hold, finish)
            self.used += self.open.pop(hold.id)
            self.charges.add(hold.id)
            self.answered.add(claim.key)
        elif ending == "fails":
            self.release(hold, USE)
            self.database.run_blocking(idempotency.abandon, claim)
        elif ending == "crashes while it settles":
            self.crash_while_settling(hold)
        else:
            self.crash_and_recover()

    @invariant()
    def the_ledger_adds_up(self) -> None:
        problems, found, charges = self.database.run_blocking(look, self.account)
        held = sum(self.open.values())
        assert problems == ()
        assert (found.credits_remaining, found.credits_held) == (self.balance, held)
        assert (found.credits_used_total, found.credits_total_purchased) == (self.used, self.purchased)
        assert charges == self.charges


def test_histories(url: str) -> None:
    class Here(Histories):
        address = url

    some = settings(max_examples=6, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=some)


async def reserve(database: Database, account: str) -> None:
    await database.run(ledger.reserve, account, 1, OWNER)


def reserve_by_read_and_write(calls: int) -> Attempt:
    """A broken ledger: reads the balance, waits until so many calls have, then writes it."""
    all_have_read = asyncio.Barrier(calls)

    def write(transaction: Transaction, account: str, balance: int) -> None:
        changes = {"credits_remaining": balance - 1, "credits_held": models.Account.credits_held + 1}
        transaction.execute(models.Account.update(changes).where(models.Account.id == account))

    async def attempt(database: Database, account: str) -> None:
        balance = await database.run(ledger.balance, account)
        await all_have_read.wait()
        if balance < 1:
            raise NoCredits(balance, 1)
        await database.run(write, account, balance)

    return attempt


async def purchase(database: Database, account: str) -> None:
    await database.run(ledger.credit, account, "purchase", 500, f"checkout of {account}")


def purchase_by_check_and_insert(calls: int) -> Attempt:
    """A broken ledger: checks whether a purchase is recorded, waits for the other calls, then inserts it once more."""
    all_have_checked = asyncio.Barrier(calls)

    async def attempt(database: Database, account: str) -> None:
        seen = models.Entry.select().where((models.Entry.account == account) & (models.Entry.kind == "purchase"))
        found = await database.run(lambda transaction: transaction.all(seen))
        await all_have_checked.wait()
        if not found:
            await database.run(ledger.credit, account, "purchase", 500, new_id("ref"))

    return attempt


async def last_credits(database: Database, attempt: Attempt, rounds: int) -> set[int]:
    """Returns how many of the concurrent calls got an account's last credit, as a set over all rounds."""
    winners = set()
    for _ in range(rounds):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=1)
        results = await asyncio.gather(
            *(attempt(database, account.id) for _ in range(_RESERVATIONS)), return_exceptions=True
        )
        assert all(result is None or isinstance(result, NoCredits) for result in results)
        winners.add(results.count(None))
    return winners


async def purchases(database: Database, attempt: Attempt, rounds: int) -> set[int]:
    """Returns the balance after concurrent reports of one purchase, as a set over all rounds."""
    balances = set()
    for _ in range(rounds):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=0)
        await asyncio.gather(*(attempt(database, account.id) for _ in range(_REPORTS)))
        balances.add(await database.run(ledger.balance, account.id))
    return balances


async def test_the_last_credit_is_held_once(database: Database) -> None:
    assert await last_credits(database, reserve, rounds=25) == {1}
    assert await database.run(ledger_audit.check) == ()


async def test_a_purchase_is_credited_once(database: Database) -> None:
    assert await purchases(database, purchase, rounds=25) == {500}
    assert await database.run(ledger_audit.check) == ()


async def test_a_read_before_write_race_is_detected(database: Database) -> None:
    assert await last_credits(database, reserve_by_read_and_write(_RESERVATIONS), rounds=1) == {_RESERVATIONS}
    assert await database.run(ledger_audit.check) != ()


async def test_a_check_before_insert_race_is_detected(database: Database) -> None:
    assert await purchases(database, purchase_by_check_and_insert(_REPORTS), rounds=1) == {500 * _REPORTS}


def test_four_processes_open_an_empty_database_and_race(empty_url: str) -> None:
    racers = [StorageProcess(race, empty_url) for _ in range(4)]
    try:
        assert [racer.answer() for racer in racers] == ["ready"] * 4
        database = Database(empty_url)
        for _ in range(10):
            account = open_account(database, 1)
            for racer in racers:
                racer.request(account.id)
            assert sorted(racer.answer() for racer in racers) == [*["refused"] * 3, "won"]
        assert database.run_blocking(ledger_audit.check) == ()
        database.close()
    finally:
        codes = [racer.end() for racer in racers]
    assert codes == [0] * 4


async def test_a_cancelled_reservation_holds_no_credits(database: Database) -> None:
    account = await database.run(accounts.create, "a@b.org", "n", free_credits=10)
    for _ in range(10):
        hold_id = new_id("hold")
        attempt = asyncio.create_task(database.run(ledger.reserve, account.id, 1, OWNER, hold_id))
        await asyncio.sleep(0)
        attempt.cancel()
        with suppress(asyncio.CancelledError):
            await attempt
        assert await database.run(ledger.release, account.id, hold_id) == 10
