"""Backfills: changes of rows that migrations postpone; they are made in batches, while servers run.

A batch is a short transaction, so that charges wait for it less than a second. Until a backfill is done, readers take
the old rows into account.
"""

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from storage.database.transaction import Statement, Transaction, reading
from storage.tables import models

Batch: TypeAlias = Callable[[Transaction, str], str | None]
"""Makes the changes of a batch that begins at a position. Returns the position of the next one, None at the end."""

_DAY = 86_400  # seconds
_BATCH_SIZE = 500  # rows, about
_UNDECIDED = 600  # seconds after which no server asks whether a hold was settled

NEXT_DAY = Statement(
    "SELECT account, at / 86400 FROM usage WHERE (account, at) > (:account, :at) ORDER BY account, at LIMIT 1"
)
DELETE_SUMS = Statement("DELETE FROM usage_day WHERE account = :account AND day = :day")
INSERT_SUMS = Statement(
    "INSERT INTO usage_day SELECT account, :day, operation, input_format, output_format, success,"
    " COUNT(*), SUM(credits), SUM(bytes_in), SUM(bytes_out) FROM usage"
    " WHERE account = :account AND at >= :start AND at < :end"
    " GROUP BY account, operation, input_format, output_format, success RETURNING conversions"
)
SET_SIZE = Statement("UPDATE file SET result_size = :size WHERE id = :file AND result_size IS NULL")
LAST_HOLD = Statement(
    "SELECT MAX(id) FROM (SELECT id FROM hold WHERE id > :position ORDER BY id LIMIT :count) AS batch"
)
DELETE_ENDED = Statement(
    "DELETE FROM hold WHERE id > :position AND id <= :end AND state <> 'held' AND expires_at <= :until"
)
ANY_ENDED = Statement("SELECT 1 FROM hold WHERE state <> 'held' LIMIT 1")


@reading
def pending(transaction: Transaction) -> tuple[str, ...]:
    """Returns the names of the backfills that are not done."""
    return tuple(row.name for row in transaction.all(models.Backfill.select().order_by(models.Backfill.name)))


def is_pending(transaction: Transaction, name: str) -> bool:
    """Whether this backfill is not done."""
    return transaction.first(models.Backfill.select().where(models.Backfill.name == name)) is not None


def run_batch(transaction: Transaction, name: str) -> bool:
    """Makes the changes of a batch. Returns whether another one can follow at once."""
    table = models.Backfill
    own = table.name == name
    row = transaction.select_for_update(table.select().where(own))
    if row is None:
        return False
    position = _BATCHES[name](transaction, row.position)
    if position is None:
        transaction.execute(table.delete().where(own))
    else:
        transaction.execute(table.update(position=position).where(own))
    return bool(position)


def _usage_day(transaction: Transaction, position: str) -> str | None:
    """Sums the usage of each account and day again, including what the trigger has added meanwhile."""
    account, day = json.loads(position) if position else ("", -1)
    rows = 0
    while rows < _BATCH_SIZE:
        found = transaction.execute_statement(NEXT_DAY, account=account, at=day * _DAY + _DAY - 1)
        if not found:
            return None
        ((account, day),) = found
        # Usage is recorded by transactions that have changed the account, so none is added during this one.
        transaction.select_for_update(models.Account.select().where(models.Account.id == account))
        transaction.execute_statement(DELETE_SUMS, account=account, day=day)
        period = {"start": day * _DAY, "end": (day + 1) * _DAY}
        sums = transaction.execute_statement(INSERT_SUMS, account=account, day=day, **period)
        rows += 10 + sum(number for (number,) in sums)  # a day has the cost of about ten rows, too
    return json.dumps([account, day])


def _result_size(transaction: Transaction, position: str) -> str | None:
    """Reads the sizes of results from their JSON."""
    table = models.File
    query = table.select(table.file_id, table.outcome, table.result_size)
    rows = transaction.rows(query.where(table.file_id > position).order_by(table.file_id).limit(_BATCH_SIZE))
    missing = ((file_id, outcome) for file_id, outcome, size in rows if outcome is not None and size is None)
    sizes = ({"file": file_id, "size": json.loads(outcome)["size"]} for file_id, outcome in missing)
    transaction.execute_many(SET_SIZE, sizes)
    return rows[-1][0] if rows else None


def _ended_holds(transaction: Transaction, position: str) -> str | None:
    """Deletes ended holds, again from the start (an empty position) while a server of the previous release runs."""
    ((end,),) = transaction.execute_statement(LAST_HOLD, position=position, count=_BATCH_SIZE)
    if end is not None:
        until = transaction.now - _UNDECIDED
        transaction.execute_statement(DELETE_ENDED, position=position, end=end, until=until)
        return str(end)
    return "" if transaction.execute_statement(ANY_ENDED) else None


_BATCHES: Mapping[str, Batch] = {
    "ended_holds": _ended_holds,
    "result_size": _result_size,
    "usage_day": _usage_day,
}
