"""The SQL statements that run on every request.

Written as text, because rendering a query with Peewee takes about fifty times as long as running it in SQLite.
"""

from __future__ import annotations

import re

from storage.database.transaction import Statement


def statement(sql: str) -> Statement:
    """Builds a statement from SQL with parameters written as `:name`."""
    return Statement(sql, re.sub(r":(\w+)", r"%(\1)s", sql))


def insert(table: str, *columns: str, suffix: str = "") -> Statement:
    """Builds a statement that inserts a row, with a parameter for each column."""
    values = ", ".join(f":{column}" for column in columns)
    return statement(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}){suffix}")


# Parameters: account, amount. Returns the new balance; no row if the balance is below the amount.
HOLD_CREDITS = statement(
    "UPDATE account SET balance = balance - :amount, held = held + :amount"
    " WHERE id = :account AND balance >= :amount RETURNING balance"
)

# Parameters: account, amount. Returns the balance.
CHARGE_HELD_CREDITS = statement(
    "UPDATE account SET held = held - :amount, used = used + :amount WHERE id = :account RETURNING balance"
)

INSERT_HOLD = insert("hold", "id", "account", "amount", "state", "server", "boot", "created_at", "expires_at")

# Parameters: hold, account, state (the new one). Returns the amount; no row if the hold has ended.
END_HOLD = statement(
    "UPDATE hold SET state = :state WHERE id = :hold AND account = :account AND state = 'held' RETURNING amount"
)

INSERT_ENTRY = insert("entry", "ref", "account", "kind", "amount", "at")

# Parameters: id, account, now. One row if the key is a valid one of the account.
SELECT_VALID_KEY = statement(
    "SELECT 1 FROM api_key WHERE id = :id AND account = :account"
    " AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
)

# Parameters: account, kept. Deletes all but the latest `kept` requests. SQLite requires a LIMIT before OFFSET.
DELETE_OLD_REQUESTS = statement(
    "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE account = :account"
    " ORDER BY at_milliseconds DESC, id DESC LIMIT 10000 OFFSET :kept)"
)
