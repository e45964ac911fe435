"""The SQL statements that run on every request.

Written as text, because rendering a query with Peewee takes about fifty times as long as running it in SQLite.
"""

from __future__ import annotations

import re

from storage.database.transaction import Statement


def statement(sql: str) -> Statement:
    """Builds a statement from SQL with parameters written as `:name`."""
    return Statement(sql, re.sub(r":(\w+)", r"%(\1)s", sql))


# Parameters: account, amount. Returns the new balance; no row if the balance is below the amount.
HOLD_CREDITS = statement(
    "UPDATE account SET balance = balance - :amount, held = held + :amount"
    " WHERE id = :account AND balance >= :amount RETURNING balance"
)

# Parameters: account, amount. Returns the balance.
CHARGE_HELD_CREDITS = statement(
    "UPDATE account SET held = held - :amount, used = used + :amount WHERE id = :account RETURNING balance"
)

INSERT_HOLD = statement(
    "INSERT INTO hold (id, account, amount, state, server, boot, created_at, expires_at)"
    " VALUES (:id, :account, :amount, :state, :server, :boot, :created_at, :expires_at)"
)

# Parameters: hold, account, state (the new one). Returns the amount; no row if the hold has ended.
END_HOLD = statement(
    "UPDATE hold SET state = :state WHERE id = :hold AND account = :account AND state = 'held' RETURNING amount"
)

INSERT_ENTRY = statement(
    "INSERT INTO entry (ref, account, kind, amount, at) VALUES (:ref, :account, :kind, :amount, :at)"
)

# A trigger adds the row to the sums of `usage_day`.
INSERT_USAGE = statement(
    "INSERT INTO usage (account, operation, input_format, output_format, bytes_in, bytes_out, success, credits, at)"
    " VALUES (:account, :operation, :input_format, :output_format, :bytes_in, :bytes_out, :success, :credits, :at)"
)

# The columns are the fields of storage.tables.accounts.Account, then those of storage.tables.api_keys.Key.
_SELECT_KEY = (
    "SELECT a.id, a.email, a.name, a.verified_at, a.balance, a.held, a.purchased, a.used, a.created_at,"
    " a.last_used_at, k.id, k.prefix, k.name, k.created_at, k.last_used_at, k.expires_at"
    " FROM api_key k JOIN account a ON a.id = k.account"
    " WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)"
)

# Parameters: sha256, now. Returns the account and the key; no row if the key is not valid.
SELECT_KEY_BY_SHA256 = statement(f"{_SELECT_KEY} AND k.sha256 = :sha256")

# Parameters: id, now. Returns the account and the key; no row if the key is not valid.
SELECT_KEY_BY_ID = statement(f"{_SELECT_KEY} AND k.id = :id")

# Parameters: id, account, now. One row if the key is a valid one of the account.
SELECT_VALID_KEY = statement(
    "SELECT 1 FROM api_key WHERE id = :id AND account = :account"
    " AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
)

INSERT_REQUEST = statement(
    "INSERT INTO request (id, account, method, path, status, code, milliseconds, at_milliseconds)"
    " VALUES (:id, :account, :method, :path, :status, :code, :milliseconds, :at_milliseconds)"
    " ON CONFLICT DO NOTHING"
)

# Parameters: account, kept. Deletes all but the latest `kept` requests. SQLite requires a LIMIT before OFFSET.
DELETE_OLD_REQUESTS = statement(
    "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE account = :account"
    " ORDER BY at_milliseconds DESC, id DESC LIMIT 10000 OFFSET :kept)"
)
