"""Archives: usage and charges of past months are moved to files; sums remain, so that reports and the ledger agree.

`usage_day` has the sums of the usage. One entry per account and month replaces the charges. Other entries stay: their
`ref` keeps a purchase from being credited twice, which no partition of the table by months could.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from storage.database.transaction import Statement, Transaction, reading
from storage.tables import backfills, models

_DAY = 86_400  # seconds
BATCH_SIZE = 1000  # rows, about

NEXT_ACCOUNT = Statement(
    "SELECT id FROM account WHERE id > :account"
    " AND (EXISTS (SELECT 1 FROM usage WHERE usage.account = account.id AND at < :before)"
    " OR EXISTS (SELECT 1 FROM entry WHERE entry.account = account.id AND at < :before AND kind = 'charge'))"
    " ORDER BY id LIMIT 1"
)
NEXT_TIME = Statement(
    "SELECT MIN(at) FROM (SELECT MIN(at) AS at FROM usage WHERE account = :account AND at >= :start AND at < :before"
    " UNION ALL SELECT MIN(at) FROM entry"
    " WHERE account = :account AND at >= :start AND at < :before AND kind = 'charge') AS first"
)
DELETE_USAGE = Statement("DELETE FROM usage WHERE account = :account AND at >= :start AND at < :end")
DELETE_CHARGES = Statement(
    "DELETE FROM entry WHERE account = :account AND at >= :start AND at < :end AND kind = 'charge' RETURNING amount"
)
ADD_TO_MONTH = Statement(
    "INSERT INTO entry (ref, account, kind, amount, at) VALUES (:ref, :account, 'archived', :amount, :at)"
    " ON CONFLICT (ref) DO UPDATE SET amount = entry.amount + excluded.amount"
)

Position: TypeAlias = tuple[str, int]
"""An account and a day (UTC, days since 1970-01-01)."""

START: Position = ("", -1)


class NotArchivable(ValueError):
    """The rows cannot be moved now; the message has the reason."""


@dataclass(frozen=True)
class Batch:
    """Rows of usage and of the ledger, by the names of their columns, and where the next batch begins, if any."""

    usage: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    next: Position | None


@reading
def check(transaction: Transaction, before: int) -> None:
    """Raises NotArchivable while rows before this time can still be added, or an earlier archive is not removed."""
    if transaction.now < before + _DAY:
        raise NotArchivable("The month before it has not been over for a day.")
    if backfills.is_pending(transaction, "usage_day"):
        raise NotArchivable("The servers still sum the usage of each day.")
    for earlier in transaction.all(models.Archive.select().where(models.Archive.before != before)):
        if next(_days(transaction, START, earlier.before), None):
            raise NotArchivable("An earlier archive was interrupted: run its command again first.")


@reading
def find(transaction: Transaction, before: int) -> str | None:
    """Returns the SHA-256 of the file with everything before this time, None if there is none."""
    row = transaction.first(models.Archive.select().where(models.Archive.before == before))
    return None if row is None else row.sha256


def begin(transaction: Transaction, before: int, sha256: str) -> None:
    """Records that a file has everything before this time, so that it can be removed."""
    transaction.insert(models.Archive.insert(before=before, sha256=sha256, at=transaction.now))


@reading
def read(transaction: Transaction, position: Position, before: int) -> Batch:
    """Returns about 1,000 rows from before this time: whole days of an account, after a position."""
    batch = Batch([], [], None)
    for account, day in _days(transaction, position, before):
        for rows, table, charges in (
            (batch.usage, models.Usage, True),
            (batch.entries, models.Entry, models.Entry.kind == "charge"),
        ):
            own = (table.account == account) & (table.at >= day * _DAY) & (table.at < (day + 1) * _DAY)
            rows += transaction.dicts(table.select().where(own & charges).order_by(table.at))
        if len(batch.usage) + len(batch.entries) >= BATCH_SIZE:
            return Batch(batch.usage, batch.entries, (account, day))
    return batch


def remove(transaction: Transaction, position: Position, before: int) -> Position | None:
    """Removes about as many rows as `read` returns. Returns where the next batch begins, None at the end."""
    rows = 0
    for account, day in _days(transaction, position, before):
        period = {"account": account, "start": day * _DAY, "end": (day + 1) * _DAY}
        charges = [amount for (amount,) in transaction.execute_statement(DELETE_CHARGES, **period)]
        transaction.execute_statement(DELETE_USAGE, **period)
        month = datetime.fromtimestamp(day * _DAY, UTC).replace(day=1)
        entry = {"ref": f"archive:{month:%Y-%m}:{account}", "account": account, "at": int(month.timestamp())}
        if charges:
            transaction.execute_statement(ADD_TO_MONTH, **entry, amount=sum(charges))
        rows += 10 + len(charges)  # a day has the cost of about ten rows, too
        if rows >= BATCH_SIZE:
            return account, day
    return None


def _days(transaction: Transaction, position: Position, before: int) -> Iterator[Position]:
    """The days with usage or charges before this time, after a position, in the order of accounts and days."""
    account, day = position
    while True:
        ((at,),) = transaction.execute_statement(NEXT_TIME, account=account, start=(day + 1) * _DAY, before=before)
        if at is not None:
            day = at // _DAY
            yield account, day
            continue
        found = transaction.execute_statement(NEXT_ACCOUNT, account=account, before=before)
        if not found:
            return
        account = found[0][0]
        day = -1
