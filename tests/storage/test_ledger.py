"""Ledger: single calls."""

import logging
from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction
from storage.errors import HoldLost, NoCredits, NotFound
from storage.ids import new_id
from storage.tables import accounts, api_keys, ledger, ledger_audit, models, usage
from storage.tables.accounts import StoredAccount
from storage.tables.ledger import CreditResult, Hold, ServerInstance
from tests.support.samples.storage import OWNER, USE, Clock, open_account, settle_and

pytestmark = pytest.mark.both_databases


class Trouble(Exception):
    """An error in the middle of a transaction."""


def reserve(
    database: Database, account: StoredAccount, amount: int = 1, owner: ServerInstance = OWNER, lifetime: int = 60
) -> Hold:
    return database.run_blocking(ledger.reserve, account.id, amount, owner, lifetime)


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
    hold = database.run_blocking(ledger.reserve, account.id, 1, OWNER, 60, chosen)
    assert hold.id == chosen
    with pytest.raises(peewee.IntegrityError):
        database.run_blocking(ledger.reserve, account.id, 1, OWNER, 60, chosen)
    assert database.run_blocking(ledger.release, account.id, chosen) == 10
    assert now(database, account) == (10, 0, 0)


@pytest.mark.parametrize("amount", [0, -1])
def test_amounts_must_be_positive(database: Database, amount: int) -> None:
    account = open_account(database, 10)
    with pytest.raises(ValueError, match="must be positive"):
        reserve(database, account, amount)
    with pytest.raises(ValueError, match="must be positive"):
        database.run_blocking(ledger.credit, account.id, "grant", amount, "ref")


def test_unknown_accounts_are_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.run_blocking(ledger.reserve, "acct_of_nobody", 1, OWNER, 60)
    with pytest.raises(NotFound):
        database.run_blocking(ledger.credit, "acct_of_nobody", "grant", 1, "ref")


def test_credits_are_added_once_per_ref(database: Database) -> None:
    account = open_account(database, 10)
    for fresh in (True, False, False):
        credited = database.run_blocking(ledger.credit, account.id, "purchase", 500, "checkout")
        assert credited == CreditResult(510, fresh)
    assert database.run_blocking(accounts.get, account.id).credits_total_purchased == 500
    assert now(database, account) == (510, 0, 0)


def test_recovery_releases_holds_of_earlier_runs(database: Database) -> None:
    account, other = open_account(database, 10), open_account(database, 10)
    for holder in (account, account, other):
        reserve(database, holder, 2)
    kept = reserve(database, account, owner=ServerInstance("main", "boot-2"))
    reserve(database, account, owner=ServerInstance("another server", "boot-1"))
    assert database.run_blocking(ledger.recover, ServerInstance("main", "boot-2")) == 3
    assert (now(database, account), now(database, other)) == ((8, 2, 0), (10, 0, 0))
    database.run_blocking(ledger.settle, kept, USE)


def test_expired_holds_are_released(database: Database, clock: Clock) -> None:
    account = open_account(database, 10)
    expires, lasts = reserve(database, account, 2, lifetime=60), reserve(database, account, 3, lifetime=61)
    clock.now += 59
    assert database.run_blocking(ledger.release_expired) == 0
    clock.now += 1
    assert database.run_blocking(ledger.release_expired) == 1
    with pytest.raises(HoldLost):
        database.run_blocking(ledger.settle, expires, USE)
    database.run_blocking(ledger.settle, lasts, USE)
    assert now(database, account) == (7, 0, 3)


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
    assert database.run_blocking(ledger.recover, OWNER) == database.run_blocking(ledger.release_expired) == 0
    assert database.run_blocking(accounts.get, account.id).credits_remaining == 10


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_postgresql_holds_and_charges_credits_in_one_statement_each(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    account = open_account(database, 1).id
    caplog.set_level(logging.DEBUG, "peewee")
    hold = database.run_blocking(ledger.reserve, account, 1, OWNER, 60)
    database.run_blocking(ledger.settle, hold, USE)

    messages: list[Any] = [record.msg for record in caplog.records if record.name == "peewee"]
    assert [sql.split()[0] for sql, _ in messages] == ["BEGIN", "WITH", "COMMIT"] * 2


def test_a_key_that_is_not_valid_holds_no_credits(database: Database) -> None:
    account, other = open_account(database, 1).id, open_account(database, 1).id
    key, another = (database.run_blocking(api_keys.issue, owner, "a key").key.key_id for owner in (account, other))
    for invalid in (another, "key_unknown"):
        with pytest.raises(NoCredits):
            database.run_blocking(ledger.reserve, account, 1, OWNER, 60, None, invalid)
    assert database.run_blocking(ledger.reserve, account, 1, OWNER, 60, None, key).balance == 0
