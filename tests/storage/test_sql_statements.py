"""SQL statements: each runs on both databases and does what its query by models would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from storage.database import Database, sql_statements
from storage.database.sql_statements import statement
from storage.database.transaction import Statement, Transaction
from storage.tables import api_keys, models
from storage.tables.accounts import Account
from storage.tables.api_keys import Key, digest
from tests.support.samples.storage import Clock, open_account

pytestmark = pytest.mark.both_databases

STATEMENTS = {name: value for name, value in vars(sql_statements).items() if isinstance(value, Statement)}
INSERTS: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "INSERT_HOLD": (models.Hold, {"state": "held", "amount": 3}),
    "INSERT_ENTRY": (models.Entry, {"kind": "grant", "amount": 3}),
    "INSERT_USAGE": (models.Usage, {"success": True}),
    "INSERT_REQUEST": (models.Request, {"code": None}),
}


def run(database: Database, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return database.run_blocking(lambda transaction: transaction.execute_statement(STATEMENTS[name], **values))


def rows(database: Database, table: type[Any], account: str) -> list[Any]:
    return database.run_blocking(lambda transaction: transaction.all(table.select().where(table.account == account)))


def account_row(database: Database, account: str) -> models.Account:
    (row,) = database.run_blocking(
        lambda transaction: transaction.all(models.Account.select().where(models.Account.id == account))
    )
    return row


def row_of(table: type[Any], account: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a distinct value in each column."""
    columns = enumerate(field.column_name for field in table._meta.sorted_fields)
    types = {field.column_name: field.field_type for field in table._meta.sorted_fields}
    row = {name: number + 10 if types[name] == "BIGINT" else f"{name}_{account}" for number, name in columns}
    return row | {"account": account} | dict(values)


@pytest.mark.parametrize("name", INSERTS)
def test_inserts_fill_every_column(database: Database, name: str) -> None:
    table, values = INSERTS[name]
    account = open_account(database, 0).id
    row = row_of(table, account, values)
    assert run(database, name, **row) == []
    (inserted,) = rows(database, table, account)
    assert {column: getattr(inserted, column) for column in row} == row


def test_a_request_is_inserted_once(database: Database) -> None:
    account = open_account(database).id
    row = row_of(models.Request, account, {})
    for _ in range(2):
        run(database, "INSERT_REQUEST", **row)
    assert len(rows(database, models.Request, account)) == 1


def test_old_requests_are_deleted(database: Database) -> None:
    account = open_account(database).id
    for number in range(5):
        row = row_of(models.Request, account, {"id": f"{number}_{account}", "at_milliseconds": number // 2})
        run(database, "INSERT_REQUEST", **row)
    run(database, "DELETE_OLD_REQUESTS", account=account, kept=2)
    assert {row.id[0] for row in rows(database, models.Request, account)} == {"3", "4"}


def test_credits_are_held_and_charged(database: Database) -> None:
    account = open_account(database, 5).id
    assert run(database, "HOLD_CREDITS", account=account, amount=6) == []
    assert run(database, "HOLD_CREDITS", account=account, amount=3) == [(2,)]
    assert run(database, "CHARGE_HELD_CREDITS", account=account, amount=2) == [(2,)]
    row = account_row(database, account)
    assert (row.balance, row.held, row.used) == (2, 1, 2)


def test_a_hold_ends_once_and_for_its_account_only(database: Database) -> None:
    account, other = (open_account(database).id for _ in range(2))
    row = row_of(models.Hold, account, {"state": "held", "amount": 3})
    run(database, "INSERT_HOLD", **row)
    assert run(database, "END_HOLD", hold=row["id"], account=other, state="settled") == []
    assert run(database, "END_HOLD", hold=row["id"], account=account, state="settled") == [(3,)]
    assert run(database, "END_HOLD", hold=row["id"], account=account, state="released") == []
    assert [hold.state for hold in rows(database, models.Hold, account)] == ["settled"]


@pytest.mark.parametrize("revoked_at", [None, 1])
@pytest.mark.parametrize(("expires_in", "valid"), [(None, True), (1, True), (0, False)])
def test_valid_keys_are_found(
    database: Database, clock: Clock, revoked_at: int | None, expires_in: int | None, valid: bool
) -> None:
    account, now = open_account(database), int(clock())
    issued = database.run_blocking(api_keys.issue, account.id, "a key")
    expires_at = None if expires_in is None else now + expires_in
    change = models.Key.update(revoked_at=revoked_at, expires_at=expires_at).where(models.Key.id == issued.key.id)
    database.run_blocking(lambda transaction: transaction.execute(change))
    for found in (
        run(database, "SELECT_KEY_BY_SHA256", sha256=digest(issued.text), now=now),
        run(database, "SELECT_KEY_BY_ID", id=issued.key.id, now=now),
    ):
        assert bool(found) == (valid and revoked_at is None)
        for row in found:
            assert dict(zip((field.name for field in fields(Account)), row, strict=False)) == vars(account)
            (key,) = rows(database, models.Key, account.id)
            assert row[len(fields(Account)) :] == tuple(getattr(key, field.name) for field in fields(Key))


@pytest.mark.parametrize("name", ["SELECT_KEY_BY_SHA256", "SELECT_KEY_BY_ID"])
@pytest.mark.parametrize("value", ["", "' OR '1'='1", "%s", "?", ":now"])
def test_values_are_not_sql(database: Database, name: str, value: str) -> None:
    database.run_blocking(api_keys.issue, open_account(database).id, "a key")
    assert run(database, name, **{"sha256" if name.endswith("SHA256") else "id": value}, now=0) == []


def test_a_statement_runs_once_per_row(database: Database) -> None:
    accounts = [open_account(database).id for _ in range(3)]
    rename = statement("UPDATE account SET name = :name WHERE id = :id")

    def run_all(transaction: Transaction) -> None:
        transaction.execute_many(rename, ({"id": account, "name": f"name of {account}"} for account in accounts))

    database.run_blocking(run_all)
    assert [account_row(database, account).name for account in accounts] == [f"name of {one}" for one in accounts]
