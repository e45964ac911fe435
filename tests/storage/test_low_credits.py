"""The event `credits.low`: once for a purchase, in the transaction that charges."""

import json
import logging

import pytest

from storage.database import Database, Transaction
from storage.tables import ledger, webhook_models, webhooks
from tests.support.samples.storage import OWNER, USE, open_account

pytestmark = pytest.mark.both_databases

URL = "https://example.org/hook"


def charge(database: Database, account: str, credits: int = 1) -> None:
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, credits, OWNER, 60), USE)


def told(database: Database) -> list[dict[str, int]]:
    rows = database.run_blocking(Transaction.all, webhook_models.Delivery.select())
    assert {row.event for row in rows} <= {"credits.low"}
    return [json.loads(row.body)["data"] for row in rows]


def buy(database: Database, account: str, credits: int, ref: str) -> None:
    database.run_blocking(ledger.credit, account, "purchase", credits, ref)


def test_once_for_a_purchase(database: Database) -> None:
    account = open_account(database, 0).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    buy(database, account, 21, "first")
    charge(database, account, 18)
    assert told(database) == []  # 3 of 21 are left: a tenth is 2.1
    charge(database, account)
    assert told(database) == [{"credits_remaining": 2, "threshold": 3}]
    charge(database, account)
    buy(database, account, 10, "second")
    buy(database, account, 21, "first")  # reported twice, credited once
    charge(database, account, 10)
    assert len(told(database)) == 1  # 1 of 10 is left
    charge(database, account)
    assert told(database)[1:] == [{"credits_remaining": 0, "threshold": 1}]


def test_grants_are_no_packs(database: Database) -> None:
    account = open_account(database, 50).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    charge(database, account, 50)
    assert told(database) == []


def test_nothing_is_told_if_the_charge_is_rolled_back(database: Database) -> None:
    account = open_account(database, 0).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    buy(database, account, 10, "first")
    hold = database.run_blocking(ledger.reserve, account, 10, OWNER, 60)

    def settle_and_fail(transaction: Transaction) -> None:
        ledger.settle(transaction, hold, USE)
        raise KeyError

    with pytest.raises(KeyError):
        database.run_blocking(settle_and_fail)
    assert told(database) == []
    database.run_blocking(ledger.settle, hold, USE)
    assert len(told(database)) == 1


def test_a_charge_needs_no_additional_statement(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Neither before the balance is low, nor after it was told."""
    account, other = open_account(database, 0).id, open_account(database, 10).id
    buy(database, account, 100, "first")

    def statements(owner: str, credits: int) -> int:
        hold = database.run_blocking(ledger.reserve, owner, credits, OWNER, 60)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "peewee"):
            database.run_blocking(ledger.settle, hold, USE)
        return len([record for record in caplog.records if record.name == "peewee"])

    usual = statements(other, 1)
    assert statements(account, 90) == usual
    assert statements(account, 1) > usual
    assert statements(account, 1) == usual
