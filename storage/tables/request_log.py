"""Request log: the latest requests of each account, shown in its dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage.database import Transaction
from storage.database.sql_statements import DELETE_OLD_REQUESTS, INSERT_REQUEST
from storage.tables import models

MAX_REQUESTS = 200  # stored requests per account


@dataclass(frozen=True)
class LoggedRequest:
    """A completed request. `code` is the error code, if any. Query strings and file names are not stored."""

    id: str
    account: str
    method: str
    path: str
    status: int
    code: str | None
    milliseconds: int
    at_milliseconds: int  # Unix time


def record(transaction: Transaction, requests: Iterable[LoggedRequest]) -> None:
    """Inserts requests and deletes all but the latest MAX_REQUESTS of each of their accounts."""
    inserted = tuple(requests)
    transaction.execute_many(INSERT_REQUEST, map(vars, inserted))
    for account in sorted({request.account for request in inserted}):
        transaction.execute_statement(DELETE_OLD_REQUESTS, account=account, kept=MAX_REQUESTS)


def latest(transaction: Transaction, account: str) -> tuple[LoggedRequest, ...]:
    """Returns the account's stored requests, newest first."""
    table = models.Request
    columns = [getattr(table, name) for name in LoggedRequest.__dataclass_fields__]
    query = table.select(*columns).where(table.account == account)
    rows = transaction.rows(query.order_by(table.at_milliseconds.desc(), table.id.desc()).limit(MAX_REQUESTS))
    return tuple(LoggedRequest(*row) for row in rows)
