"""Prepared queries: written once, asked with other values each time."""

from __future__ import annotations

import pytest
from peewee import BaseQuery

from storage import models
from storage.database import Database
from storage.prepared import Given, Prepared
from storage.transaction import Transaction
from tests.support.storage_samples import open_account

pytestmark = pytest.mark.both_databases


def test_each_time_it_is_asked_with_other_values(database: Database) -> None:
    accounts = [open_account(database) for _ in range(3)]
    written = 0

    def build(given: Given) -> BaseQuery:
        nonlocal written
        written += 1
        table = models.Account
        return table.select(table.email, table.name).where((table.id == given("id")) & (table.name != "nobody"))

    query = Prepared(build)

    def ask(transaction: Transaction, account: str) -> list[tuple[str, ...]]:
        return transaction.ask(query, id=account)

    for account in accounts:
        assert database.run_blocking(ask, account.id) == [(account.email, account.name)]
    for nobody in ("", "' OR '1'='1", "%s", "?"):
        assert database.run_blocking(ask, nobody) == []
    assert written == 1


def test_it_is_written_for_each_kind_of_database(database: Database) -> None:
    table = models.Account
    query = Prepared(lambda given: table.select(table.id).where(table.id == given("id")))
    account, other = open_account(database), Database("sqlite:///:memory:")
    try:
        for asked in (database, other, database):
            found = asked.run_blocking(lambda transaction: transaction.ask(query, id=account.id))
            assert found == ([] if asked is other else [(account.id,)])
    finally:
        other.close()


def test_a_change_tells_what_it_changed(database: Database) -> None:
    account, table = open_account(database), models.Account
    rename = Prepared(
        lambda given: table.update({table.name: given("name")}).where(table.id == given("id")).returning(table.name)
    )

    def ask(transaction: Transaction, account: str) -> list[tuple[str, ...]]:
        return transaction.ask(rename, id=account, name="Anna")

    assert database.run_blocking(ask, account.id) == [("Anna",)]
    assert database.run_blocking(ask, "acct_nobody") == []
