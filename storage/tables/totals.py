"""Totals over all accounts, for the metrics."""

from dataclasses import dataclass

from peewee import fn

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
    ever_paid = fn.COUNT(fn.NULLIF(accounts.credits_total_purchased, 0))
    columns = (fn.COUNT(accounts.id), ever_paid, fn.SUM(accounts.credits_remaining), fn.SUM(accounts.credits_held))
    kept = accounts.email != ""  # not deleted
    ((all_accounts, paid_accounts, balance, held),) = transaction.rows(accounts.select(*columns).where(kept))
    numbers = (fn.COUNT(files.file_id), fn.COUNT(files.processed_at))
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
    results = table.select(table.result.alias("blob"), table.result_size.alias("size")).where(
        table.result.is_null(False)
    )
    # A UNION, so that a blob shared by several files counts once.
    blobs = uploads.where(table.source.is_null(False)) | results
    ((total,),) = transaction.rows(models.File.select(fn.SUM(blobs.c.size)).from_(blobs))
    return int(total or 0)
