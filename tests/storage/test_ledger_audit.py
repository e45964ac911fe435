"""Ledger audit, and the constraints of the database."""

import peewee
import pytest

from storage.database import Database
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


def test_a_settled_hold_without_a_charge_is_found(database: Database) -> None:
    hold = database.run_blocking(ledger.reserve, open_account(database, 10).id, 1, OWNER, 60)
    database.run_blocking(ledger.settle, hold, USE)
    renamed = models.Entry.update(ref="another").where(models.Entry.ref == hold.id)
    database.run_blocking(lambda transaction: transaction.execute(renamed))
    assert len(database.run_blocking(ledger_audit.check)) == 1


@pytest.mark.parametrize("change", [{"balance": -1}, {"held": -1}])
def test_the_database_rejects_negative_amounts(database: Database, change: dict[str, int]) -> None:
    open_account(database)
    with pytest.raises(peewee.IntegrityError):
        database.run_blocking(lambda transaction: transaction.execute(models.Account.update(change)))
