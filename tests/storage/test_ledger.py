"""Ledger: single calls, the audit, the constraints of the database, and totals that triggers keep."""

import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction
from storage.errors import HoldLost, NoCredits, NotFound
from storage.ids import new_id
from storage.tables import accounts, api_keys, files, ledger, ledger_audit, models, totals, usage
from storage.tables.accounts import StoredAccount
from storage.tables.ledger import CreditResult, Hold, ServerInstance
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import (
    CONVERTED,
    DAY,
    OWNER,
    SOURCE,
    USE,
    Clock,
    lose,
    open_account,
    open_earlier_account,
    read_totals,
    settle_and,
    settle_earlier,
)

pytestmark = pytest.mark.both_databases


class Trouble(Exception):
    """An error in the middle of a transaction."""


def reserve(database: Database, account: StoredAccount, amount: int = 1) -> Hold:
    return database.run_blocking(ledger.reserve, account.id, amount, OWNER)


def now(database: Database, account: StoredAccount) -> tuple[int, int, int]:
    """Returns balance, held and used credits. Fails if the audit finds a violation."""
    assert database.run_blocking(ledger_audit.check) == ()
    found = database.run_blocking(accounts.get, account.id)
    return (found.credits_remaining, found.credits_held, found.credits_used_total)


def test_a_successful_operation_is_charged(database: Database) -> None:
    account = open_account(database, 10)
    hold = reserve(database, account, 3)
    assert hold.balance == 7
    assert not database.run_blocking(ledger.is_settled, hold)
    assert now(database, account) == (7, 3, 0)
    assert database.run_blocking(ledger.settle, hold, USE) == 7
    assert database.run_blocking(ledger.is_settled, hold)
    assert now(database, account) == (7, 0, 3)
    report = database.run_blocking(usage.report, account.id, 0, 10**11)
    assert (report.successful_conversions, report.credits_used, report.bytes_total) == (1, 3, 140)


def test_a_failed_operation_is_not_charged(database: Database) -> None:
    account = open_account(database, 10)
    hold = reserve(database, account, 3)
    assert database.run_blocking(ledger.release, account.id, hold.id, USE) == 10
    assert now(database, account) == (10, 0, 0)
    report = database.run_blocking(usage.report, account.id, 0, 10**11)
    assert (report.failed_conversions, report.credits_used) == (1, 0)


def test_a_released_hold_leaves_no_usage(database: Database) -> None:
    account = open_account(database, 10)
    database.run_blocking(ledger.release, account.id, reserve(database, account).id)
    assert database.run_blocking(usage.report, account.id, 0, 10**11).total_conversions == 0


def test_without_credits_there_is_no_hold(database: Database) -> None:
    account = open_account(database, 2)
    with pytest.raises(NoCredits) as caught:
        reserve(database, account, 3)
    assert (caught.value.code, caught.value.balance) == ("no_credits", 2)
    assert caught.value.details == {"credits_remaining": 2, "credits_required": 3}
    assert now(database, account) == (2, 0, 0)


def test_a_hold_ends_once(database: Database) -> None:
    account = open_account(database, 10)
    settled, released = reserve(database, account), reserve(database, account)
    database.run_blocking(ledger.settle, settled, USE)
    database.run_blocking(ledger.release, account.id, released.id)
    assert not database.run_blocking(ledger.is_settled, released)
    for hold in (settled, released):
        with pytest.raises(HoldLost):
            database.run_blocking(ledger.settle, hold, USE)
        assert database.run_blocking(ledger.release, account.id, hold.id, USE) == 9
    assert now(database, account) == (9, 0, 1)
    assert database.run_blocking(usage.report, account.id, 0, 10**11).total_conversions == 1


def test_foreign_and_unknown_holds_are_unchanged(database: Database) -> None:
    account, other = open_account(database, 10), open_account(database, 20)
    hold = reserve(database, account)
    foreign = Hold(hold.id, other.id, 1, 0)
    for wrong in (foreign, Hold("hold_of_nobody", account.id, 1, 0)):
        with pytest.raises(HoldLost):
            database.run_blocking(ledger.settle, wrong, USE)
        database.run_blocking(ledger.release, wrong.account, wrong.id)
    assert (now(database, account), now(database, other)) == ((9, 1, 0), (20, 0, 0))


def test_writes_of_the_caller_are_atomic_with_the_charge(database: Database) -> None:
    account = open_account(database, 10)
    hold = reserve(database, account)

    def grant(transaction: Transaction) -> None:
        ledger.credit(transaction, account.id, "grant", 5, "together")

    def fails(transaction: Transaction) -> None:
        grant(transaction)
        raise Trouble

    with pytest.raises(Trouble):
        database.run_blocking(settle_and, hold, fails)
    assert now(database, account) == (9, 1, 0)
    database.run_blocking(settle_and, hold, grant)
    assert now(database, account) == (14, 0, 1)


def test_a_hold_can_be_released_by_its_chosen_id(database: Database) -> None:
    account = open_account(database, 10)
    chosen = new_id("hold")
    assert database.run_blocking(ledger.release, account.id, chosen) == 10
    hold = database.run_blocking(ledger.reserve, account.id, 1, OWNER, chosen)
    assert hold.id == chosen
    with pytest.raises(peewee.IntegrityError):
        database.run_blocking(ledger.reserve, account.id, 1, OWNER, chosen)
    assert database.run_blocking(ledger.release, account.id, chosen) == 10
    assert now(database, account) == (10, 0, 0)


@pytest.mark.parametrize("amount", [0, -1])
def test_amounts_must_be_positive(database: Database, amount: int) -> None:
    account = open_account(database, 10)
    with pytest.raises(ValueError, match="must not be negative"):
        reserve(database, account, -1)
    with pytest.raises(ValueError, match="must be positive"):
        database.run_blocking(ledger.credit, account.id, "grant", amount, "ref")


def test_unknown_accounts_are_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.run_blocking(ledger.reserve, "acct_of_nobody", 1, OWNER)
    with pytest.raises(NotFound):
        database.run_blocking(ledger.credit, "acct_of_nobody", "grant", 1, "ref")


def test_credits_are_added_once_per_ref(database: Database) -> None:
    account = open_account(database, 10)
    for fresh in (True, False, False):
        credited = database.run_blocking(ledger.credit, account.id, "purchase", 500, "checkout")
        assert credited == CreditResult(510, fresh)
    assert database.run_blocking(accounts.get, account.id).credits_total_purchased == 500
    assert now(database, account) == (510, 0, 0)


def test_claw_back_is_limited_to_the_balance(database: Database) -> None:
    account = open_account(database, 10)
    reserve(database, account, 4)
    assert database.run_blocking(ledger.claw_back, account.id, 5, "first") == 5
    assert database.run_blocking(ledger.claw_back, account.id, 5, "second") == 1
    assert database.run_blocking(ledger.claw_back, account.id, 5, "third") == 0
    assert database.run_blocking(ledger.balance, account.id) == 0
    with pytest.raises(NotFound):
        database.run_blocking(ledger.claw_back, "acct_of_nobody", 1, "fourth")


@pytest.mark.parametrize("state", ["settled", "released"])
def test_a_hold_that_the_previous_release_has_ended_is_not_ended_again(database: Database, state: str) -> None:
    account = open_account(database, 10)
    hold = Hold("hold_old", account.id, 1, 10)
    row = {"id": hold.id, "account": account.id, "amount": 1, "state": state, "server": "main", "boot": "boot-0"}
    row |= {"created_at": 1, "expires_at": 2}
    database.run_blocking(Transaction.insert, models.Hold.insert(row))
    with pytest.raises(HoldLost):
        database.run_blocking(ledger.settle, hold, USE)
    assert database.run_blocking(ledger.release, account.id, hold.id) == 10
    lose(database, ServerInstance("main", "boot-0"))
    assert database.run_blocking(ledger.release_expired) == 0
    assert database.run_blocking(accounts.get, account.id).credits_remaining == 10


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_postgresql_holds_and_charges_by_one_statement(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    account = open_account(database, 1).id
    caplog.set_level(logging.DEBUG, "peewee")
    hold = database.run_blocking(ledger.reserve, account, 1, OWNER)
    database.run_blocking(ledger.settle, hold, USE)

    messages: list[Any] = [record.msg for record in caplog.records if record.name == "peewee"]
    assert [sql.split()[0] for sql, _ in messages] == ["BEGIN", "WITH", "COMMIT"] * 2


def test_a_key_that_is_not_valid_holds_no_credits(database: Database) -> None:
    account, other = open_account(database, 1).id, open_account(database, 1).id
    key, another = (database.run_blocking(api_keys.issue, owner, "a key").key.key_id for owner in (account, other))
    for invalid in (another, "key_unknown"):
        with pytest.raises(NoCredits):
            database.run_blocking(ledger.reserve, account, 1, OWNER, None, invalid)
    assert database.run_blocking(ledger.reserve, account, 1, OWNER, None, key).balance == 0


@pytest.mark.parametrize(
    "change",
    [
        {"credits_remaining": models.Account.credits_remaining + 1},
        {"credits_held": models.Account.credits_held + 1},
        {"credits_remaining": models.Account.credits_remaining - 1, "credits_held": models.Account.credits_held + 1},
        {"credits_used_total": models.Account.credits_used_total + 1},
        {"credits_total_purchased": models.Account.credits_total_purchased + 1},
    ],
)
def test_wrong_sums_are_found(database: Database, change: dict[str, object]) -> None:
    account = open_account(database, 10)
    assert database.run_blocking(ledger_audit.check) == ()
    database.run_blocking(lambda transaction: transaction.execute(models.Account.update(change)))
    problems = database.run_blocking(ledger_audit.check)
    assert problems
    assert all(account.id in problem for problem in problems)


@pytest.mark.parametrize("state", ["settled", "held"])
def test_holds_and_charges_that_contradict_each_other_are_found(database: Database, state: str) -> None:
    """A settled hold, which servers of the previous release keep, has a charge; an open one has none."""
    account = open_account(database, 10).id
    charged = database.run_blocking(ledger.reserve, account, 1, OWNER)
    database.run_blocking(ledger.settle, charged, USE)
    assert database.run_blocking(ledger_audit.check) == ()
    row = {"account": account, "amount": 1, "state": state, "server": "main", "boot": "boot-1"}
    row |= {"id": charged.id if state == "held" else "hold_other", "created_at": 1, "expires_at": 2}
    database.run_blocking(Transaction.insert, models.Hold.insert(row))
    held = models.Account.update(credits_held=1, credits_remaining=8) if state == "held" else None
    if held is not None:
        database.run_blocking(Transaction.execute, held)
    assert len(database.run_blocking(ledger_audit.check)) == 1


@pytest.mark.parametrize("tables", [[models.Usage], [models.UsageDay], [models.Usage, models.UsageDay]])
def test_charges_without_usage_are_found(database: Database, tables: list[type[Any]]) -> None:
    hold = database.run_blocking(ledger.reserve, open_account(database, 10).id, 1, OWNER)
    database.run_blocking(ledger.settle, hold, USE)
    for table in tables:
        database.run_blocking(Transaction.execute, table.update(credits=0))
    assert database.run_blocking(ledger_audit.check)


@pytest.mark.parametrize("change", [{"balance": -1}, {"held": -1}])
def test_the_database_rejects_negative_amounts(database: Database, change: dict[str, int]) -> None:
    open_account(database)
    with pytest.raises(peewee.IntegrityError):
        database.run_blocking(lambda transaction: transaction.execute(models.Account.update(change)))


def change(database: Database, seed: int, *, earlier: bool = False) -> None:
    """Changes accounts and files at random, in the tables of the first release if `earlier`."""
    run, chosen = database.run_blocking, random.Random(seed)
    for number in range(15):
        account = open_earlier_account(database, chosen.randrange(3, 9))
        if chosen.random() < 0.5:
            run(ledger.credit, account, "grant" if earlier else "purchase", 5, ref=f"purchase-{seed}-{number}")
        hold = run(ledger.reserve, account, 2, OWNER)
        ends: list[Callable[[], object]] = [
            lambda: run(settle_earlier, hold) if earlier else run(ledger.settle, hold, USE),  # noqa: B023, called in this round
            lambda: run(ledger.release, hold.account, hold.id),  # noqa: B023
            lambda: None,
        ]
        chosen.choice(ends)()
        stored = [run(files.add, account, replace(SOURCE, source=f"up_{seed}_{number}_{n}"), DAY) for n in range(2)]
        for _ in range(chosen.randrange(3)):  # the second time, as an additional file with the same upload
            result = replace(CONVERTED, blob=f"blob_{seed}_{number}")
            run(files.mark_processed, account, stored[0].file_id, SOURCE, result, DAY)
        if chosen.random() < 0.3:
            run(files.delete, account, chosen.choice(stored).file_id)
        if not earlier and chosen.random() < 0.2:
            run(accounts.delete, account)


def counted(database: Database) -> dict[str, Any]:
    rows = database.run_blocking(Transaction.all, models.Counted.select())
    return {row.name: row.amount for row in rows}


def assert_right(database: Database) -> None:
    found, values = read_totals(database), counted(database)
    held = sum(row.amount for row in database.run_blocking(Transaction.all, models.Hold.select()))
    assert vars(found) == {"balance": values.pop("credits") - held, "held": held, **values}
    owners = {row.account for row in database.run_blocking(Transaction.all, models.File.select())}
    sizes = {owner: database.run_blocking(files.stored_bytes, owner) for owner in owners}
    assert found.bytes == sum(sizes.values())
    known = {owner: database.run_blocking(files.most_stored_bytes, owner) for owner in owners}
    assert {owner: size for owner, size in known.items() if size is not None}.items() <= sizes.items()


def test_counters_begin_while_rows_change(empty_url: str, open_earlier: OpenEarlier, clock: Clock) -> None:
    earlier = open_earlier(8)
    change(earlier, 1, earlier=True)
    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(totals.read) is None
    with ThreadPoolExecutor(4) as threads:
        changes = [threads.submit(change, earlier, 2, earlier=True), threads.submit(change, opened, 3)]
        begun = [threads.submit(read_totals, opened) for _ in range(2)]
    assert {future.exception() for future in changes} | {future.exception() for future in begun} == {None}
    assert_right(opened)
    assert read_totals(opened).bytes > 0 < read_totals(opened).held
    clock.now += 2 * DAY
    opened.run_blocking(files.delete_expired, 1000)
    lose(opened)
    opened.run_blocking(ledger.release_expired)
    assert_right(opened)
    assert (read_totals(opened).bytes, read_totals(opened).held) == (0, 0)
    opened.close()


def test_servers_add_changes_once(database: Database, url: str, clock: Clock) -> None:
    other = Database(url, clock=clock)
    read_totals(database)
    with ThreadPoolExecutor(4) as threads:
        changes = [threads.submit(change, database, seed) for seed in range(2)]
        readers = [threads.submit(read_totals, one) for one in (database, other) * 10]
    assert {future.exception() for future in changes} | {future.exception() for future in readers} == {None}
    assert_right(other)
    assert database.run_blocking(Transaction.all, models.CounterChange.select()) == []
    other.close()


def test_transactions_that_fail_count_nothing(database: Database) -> None:
    before = read_totals(database)

    def fail(transaction: Transaction) -> None:
        accounts.create(transaction, "person@example.org", "Person", free_credits=5)
        raise NotFound("account")

    with pytest.raises(NotFound):
        database.run_blocking(fail)
    assert read_totals(database) == before


def test_the_first_changes_of_the_files_of_an_account_count_all_of_them(
    empty_url: str, open_earlier: OpenEarlier, clock: Clock
) -> None:
    """Some of them at the same time, when none has counted the files yet."""
    earlier = open_earlier(18)
    owners = [open_earlier_account(earlier, 50) for _ in range(10)]
    converted, deleted = ([earlier.run_blocking(files.add, one, SOURCE, DAY).file_id for one in owners] for _ in "12")
    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(files.most_stored_bytes, owners[0]) is None

    def change_files(number: int) -> None:
        for owner, first, second in zip(owners, converted, deleted, strict=True):
            if number == 0:
                opened.run_blocking(files.mark_processed, owner, first, SOURCE, CONVERTED, DAY)
            elif number == 1:
                opened.run_blocking(files.delete, owner, second)
            else:
                opened.run_blocking(files.add, owner, SOURCE, DAY)

    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(change_files, range(4))} == {None}
    for owner in owners:
        size = opened.run_blocking(files.stored_bytes, owner)
        assert opened.run_blocking(files.most_stored_bytes, owner) == size > 0
    opened.close()
