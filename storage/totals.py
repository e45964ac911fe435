"""The stock: how many accounts, credits and files there are in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peewee import SQL, Database, SqliteDatabase, fn

from storage import models
from storage.transaction import Transaction


@dataclass(frozen=True)
class Totals:
    """What is there. A paid account has once bought credits; `bytes` is the size of all blobs that files refer to."""

    free_accounts: int
    paid_accounts: int
    balance: int
    held: int
    pending_files: int
    processed_files: int
    bytes: int


def read(transaction: Transaction) -> Totals:
    """The stock as it is now. Looks at every account and every file."""
    accounts, files = models.Account, models.File
    paid = fn.COUNT(fn.NULLIF(accounts.purchased, 0))
    columns = (fn.COUNT(accounts.id), paid, fn.SUM(accounts.balance), fn.SUM(accounts.held))
    ((all_accounts, paid_accounts, balance, held),) = transaction.tuples(accounts.select(*columns))
    numbers = (fn.COUNT(files.id), fn.COUNT(files.processed_at))
    ((all_files, processed),) = transaction.tuples(files.select(*numbers))
    return Totals(
        free_accounts=all_accounts - paid_accounts,
        paid_accounts=paid_accounts,
        balance=int(balance or 0),
        held=int(held or 0),
        pending_files=all_files - processed,
        processed_files=processed,
        bytes=_bytes(transaction),
    )


def _bytes(transaction: Transaction) -> int:
    table = models.File
    sent = table.select(table.source.alias("blob"), table.original_size.alias("size")).where(
        table.source.is_null(False)
    )
    size = _size_of_outcome(transaction.connection).alias("size")
    made = table.select(table.result.alias("blob"), size).where(table.result.is_null(False))
    blobs = sent | made  # each once, however many files it belongs to
    ((total,),) = transaction.tuples(models.File.select(fn.SUM(blobs.c.size)).from_(blobs))
    return int(total or 0)


def _size_of_outcome(connection: Database) -> Any:
    if isinstance(connection, SqliteDatabase):
        return fn.json_extract(models.File.outcome, "$.size")
    return SQL("(outcome::json ->> 'size')::bigint")
