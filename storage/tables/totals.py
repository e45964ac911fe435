"""Totals over all accounts and files, for the metrics: counters that triggers keep."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from peewee import fn

from storage.database import Transaction
from storage.database.transaction import Statement, reading
from storage.tables import accounts, models
from storage.tables.accounts import TRIAL_EMAIL

# The partial index hold_open has only these rows.
SUM_HELD = Statement("SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM hold WHERE state = 'held'")


@dataclass(frozen=True)
class Totals:
    """Numbers of accounts and files, sums of credits, and the size of all uploads and results in bytes.

    An account that has ever bought credits is a paid account. The account of trials is neither counted nor summed up.
    """

    free_accounts: int
    paid_accounts: int
    balance: int
    held: int
    pending_files: int
    processed_files: int
    bytes: int


def read(transaction: Transaction) -> Totals | None:
    """Adds the changes since the previous call of any server to the counters, and returns the totals.

    Returns None before `begin`.
    """
    table = models.Counter
    changes = models.CounterChange
    if transaction.first(table.select()) is None:
        return None
    added: Counter[str] = Counter()
    for name, amount in transaction.execute_returning(changes.delete(), changes.name, changes.amount):
        added[name] += amount
    for name in sorted(added):
        transaction.execute(table.update({table.amount: table.amount + added[name]}).where(table.name == name))
    counters = {row.name: row.amount for row in transaction.all(table.select())}
    ((held,),) = transaction.execute_statement(SUM_HELD)
    if (trials := accounts.find(transaction, TRIAL_EMAIL)) is not None:
        counters["free_accounts"] -= 1
        counters["credits"] -= trials.credits_remaining
    return Totals(balance=counters.pop("credits") - held, held=held, **counters)


@reading
def latest(transaction: Transaction) -> Mapping[str, int]:
    """Returns the counters as of the latest `read`; none before `begin`."""
    return {row.name: row.amount for row in transaction.all(models.Counter.select())}


@reading
def count(transaction: Transaction) -> Mapping[str, int]:
    """Returns the first values of the counters: the totals of all rows, without the changes that are recorded.

    Scans all accounts and files, on a snapshot, which locks nothing. The values are the same until
    `begin`, because each change of a row is also recorded.
    """
    values = {row.name: row.amount for row in transaction.all(models.Counted.select())}
    changes = models.CounterChange
    for name, amount in transaction.rows(changes.select(changes.name, fn.SUM(changes.amount)).group_by(changes.name)):
        values[name] -= int(amount)
    return values


def begin(transaction: Transaction, values: Mapping[str, int]) -> None:
    """Sets the first values of the counters, unless another server has done so."""
    for name, amount in sorted(values.items()):
        transaction.insert_ignore(models.Counter.insert(name=name, amount=amount))
