"""Totals over all accounts, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peewee import SQL, Database, SqliteDatabase, fn

from storage.database import Transaction
from storage.tables import models


@dataclass(frozen=True)
class Totals:
    """Numbers of accounts and files, sums of credits, and the size of all blobs in bytes.

    An account that has ever bought credits is a paid account.
    """

    free_accounts: int
    paid_accounts: int
    balance: int
    held: int
    pending_files: int
    processed_files: int
    bytes: int


def read(transaction: Transaction) -> Totals:
    """Returns the current totals. Scans all accounts and files."""
    accounts, files = models.Account, models.File
    ever_paid = fn.COUNT(fn.NULLIF(accounts.purchased, 0))
    columns = (fn.COUNT(accounts.id), ever_paid, fn.SUM(accounts.balance), fn.SUM(accounts.held))
    kept = accounts.email != ""  # not deleted
    ((all_accounts, paid_accounts, balance, held),) = transaction.rows(accounts.select(*columns).where(kept))
    numbers = (fn.COUNT(files.id), fn.COUNT(files.processed_at))
    ((all_files, processed),) = transaction.rows(files.select(*numbers))
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
    uploads = table.select(table.source.alias("blob"), table.original_size.alias("size"))
    result_size = _result_size(transaction.connection).alias("size")
    results = table.select(table.result.alias("blob"), result_size).where(table.result.is_null(False))
    # A UNION, so that a blob shared by several files counts once.
    blobs = uploads.where(table.source.is_null(False)) | results
    ((total,),) = transaction.rows(models.File.select(fn.SUM(blobs.c.size)).from_(blobs))
    return int(total or 0)


def _result_size(connection: Database) -> Any:
    if isinstance(connection, SqliteDatabase):
        return fn.json_extract(models.File.outcome, "$.size")
    return SQL("(outcome::json ->> 'size')::bigint")
