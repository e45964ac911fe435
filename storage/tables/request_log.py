"""Request log: the latest requests of each account, shown in its dashboard."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from storage.database.transaction import Statement, Transaction, columns, insert, reading, unsynced
from storage.tables import models

MAX_REQUESTS = 200  # stored requests per account


@dataclass(frozen=True)
class LoggedRequest:
    """A completed request. `code` is the error code, if any. Query strings and file names are not stored.

    `details` is JSON: what else its dashboard shows.
    """

    id: str
    account: str
    method: str
    path: str
    status: int
    code: str | None
    milliseconds: int
    at_milliseconds: int  # Unix time
    details: str | None = None


_NAMES = [field.name for field in fields(LoggedRequest)]
INSERT_REQUEST = insert("request", ", ".join(_NAMES), suffix=" ON CONFLICT DO NOTHING")
# SQLite requires a LIMIT before OFFSET.
DELETE_OLD_REQUESTS = Statement(
    "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE account = :account"
    " ORDER BY at_milliseconds DESC, id DESC LIMIT 10000 OFFSET :kept)"
)


@unsynced
def record(transaction: Transaction, requests: Iterable[LoggedRequest]) -> None:
    """Inserts requests and deletes all but the latest MAX_REQUESTS of each of their accounts."""
    inserted = tuple(requests)
    transaction.execute_many(INSERT_REQUEST, map(vars, inserted))
    for account in sorted({request.account for request in inserted}):
        transaction.execute_statement(DELETE_OLD_REQUESTS, account=account, kept=MAX_REQUESTS)


@reading
def latest(transaction: Transaction, account: str) -> tuple[LoggedRequest, ...]:
    """Returns the account's stored requests, newest first."""
    table = models.Request
    query = table.select(*columns(table, LoggedRequest)).where(table.account == account)
    newest_first = query.order_by(table.at_milliseconds.desc(), table.id.desc())
    return transaction.values(LoggedRequest, newest_first.limit(MAX_REQUESTS))
