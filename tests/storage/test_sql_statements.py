"""SQL statements: each runs on both databases and does what its query by models would."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from storage.database import Database
from storage.database.transaction import Statement, Transaction
from storage.tables import api_keys, ledger, models, request_log, sessions, usage
from storage.tables.api_keys import digest
from tests.support.samples.storage import Clock, open_account

pytestmark = pytest.mark.both_databases

NAMED = vars(ledger) | vars(api_keys) | vars(sessions) | vars(request_log) | vars(usage)
STATEMENTS = {name: value for name, value in NAMED.items() if isinstance(value, Statement)}
INSERTS: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "INSERT_HOLD": (models.Hold, {"state": "held", "amount": 3}),
    "INSERT_ENTRY": (models.Entry, {"kind": "grant", "amount": 3, "reason": None}),
    "INSERT_USAGE": (models.Usage, {"success": True}),
    "INSERT_REQUEST": (models.Request, {"code": None, "details": None}),
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


@pytest.mark.parametrize("revoked_at", [None, 1])
@pytest.mark.parametrize(("expires_in", "valid"), [(None, True), (1, True), (0, False)])
def test_valid_keys_are_found(
    database: Database, clock: Clock, revoked_at: int | None, expires_in: int | None, valid: bool
) -> None:
    account, now = open_account(database), int(clock())
    issued = database.run_blocking(api_keys.issue, account.id, "a key")
    token, _ = database.run_blocking(sessions.begin, digest(issued.text))
    expires_at = None if expires_in is None else now + expires_in
    own = models.Key.key_id == issued.key.key_id
    change = models.Key.update(revoked_at=revoked_at, expires_at=expires_at).where(own)
    database.run_blocking(lambda transaction: transaction.execute(change))
    key = replace(issued.key, expires_at=expires_at, last_used_at=now)
    for found, of_key in (
        (run(database, "SELECT_BY_SHA256", sha256=digest(issued.text), now=now), tuple(vars(key).values())),
        (run(database, "SELECT_BY_SESSION", sha256=digest(token), now=now), (key.key_id,)),
    ):
        assert bool(found) == (valid and revoked_at is None)
        for row in found:
            assert row == (*vars(replace(account, last_used_at=now)).values(), *of_key)


@pytest.mark.parametrize("name", ["SELECT_BY_SHA256", "SELECT_BY_SESSION"])
@pytest.mark.parametrize("value", ["", "' OR '1'='1", "%s", "?", ":now"])
def test_values_are_not_sql(database: Database, name: str, value: str) -> None:
    database.run_blocking(api_keys.issue, open_account(database).id, "a key")
    assert run(database, name, sha256=value, now=0) == []


def test_a_statement_runs_once_per_row(database: Database) -> None:
    accounts = [open_account(database).id for _ in range(3)]
    rename = Statement("UPDATE account SET name = :name WHERE id = :id")

    def run_all(transaction: Transaction) -> None:
        transaction.execute_many(rename, ({"id": account, "name": f"name of {account}"} for account in accounts))

    database.run_blocking(run_all)
    assert [account_row(database, account).name for account in accounts] == [f"name of {one}" for one in accounts]
