"""Ledger audit, and the constraints of the database."""

from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction
from storage.tables import ledger, ledger_audit, models
from tests.support.samples.storage import OWNER, USE, open_account

pytestmark = pytest.mark.both_databases


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
    charged = database.run_blocking(ledger.reserve, account, 1, OWNER, 60)
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
    hold = database.run_blocking(ledger.reserve, open_account(database, 10).id, 1, OWNER, 60)
    database.run_blocking(ledger.settle, hold, USE)
    for table in tables:
        database.run_blocking(Transaction.execute, table.update(credits=0))
    assert database.run_blocking(ledger_audit.check)


@pytest.mark.parametrize("change", [{"balance": -1}, {"held": -1}])
def test_the_database_rejects_negative_amounts(database: Database, change: dict[str, int]) -> None:
    open_account(database)
    with pytest.raises(peewee.IntegrityError):
        database.run_blocking(lambda transaction: transaction.execute(models.Account.update(change)))
