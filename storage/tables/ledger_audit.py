"""Ledger audit: checks the invariants of the ledger, independently of the code that writes it."""

from collections import Counter
from typing import Any, TypeAlias

from peewee import SQL, fn

from storage.database import Transaction, reading
from storage.tables import backfills, models

_Sums: TypeAlias = dict[tuple[Any, ...], tuple[int, ...]]
"""Number, credits and bytes of operations, by day, operation, formats and success."""

PAGE = 500
"""The number of accounts that `next_accounts` returns."""


@reading
def next_accounts(transaction: Transaction, after: str) -> tuple[str, ...]:
    """Returns the ids of the accounts that follow, at most PAGE.

    Each account can be checked in a transaction of its own: no rule concerns several accounts.
    """
    table = models.Account
    query = table.select(table.id).where(table.id > after).order_by(table.id).limit(PAGE)
    return tuple(account for (account,) in transaction.rows(query))


@reading
def check(transaction: Transaction, account: str | None = None) -> tuple[str, ...]:
    """Returns one sentence per violated invariant, for one account or for all.

    Reads all rows of the accounts, so it is meant for operators and tests, not for requests.
    """
    query = models.Account.select()
    accounts = transaction.all(query if account is None else query.where(models.Account.id == account))
    return tuple(violation for row in accounts for violation in _violations(transaction, row))


def _violations(transaction: Transaction, account: models.Account) -> list[str]:
    remaining = account.credits_remaining
    held = account.credits_held
    sums = _entry_sums(transaction, account.id)
    charges = _charges_of_holds(transaction, account.id)
    holds = transaction.all(models.Hold.select().where(models.Hold.account == account.id))
    # Releases before 1.1.0 keep settled holds.
    settled = {hold.id: hold.amount for hold in holds if hold.state == "settled"}
    open_holds = {hold.id: hold.amount for hold in holds if hold.state == "held"}
    charged = -sums["charge"] - sums["archived"]
    usage_days = _usage(transaction, account.id)
    summed_days = _usage_per_day(transaction, account.id)
    if backfills.is_pending(transaction, "usage_day"):
        summed_days = usage_days
    rules = {
        "the entries sum to the balance plus held credits": sums.total() == remaining + held,
        "held is the sum of the open holds": held == sum(open_holds.values()),
        "balance and held are not negative": remaining >= 0 and held >= 0,
        "each settled hold has exactly one charge": settled.items() <= charges.items(),
        "no open hold has a charge": not open_holds.keys() & charges.keys(),
        "used is the sum of the charges": account.credits_used_total == charged,
        "the charges are the credits of the usage": charged == sum(credits for _, credits, *_ in summed_days.values()),
        "purchased is the sum of the purchases": account.credits_total_purchased == sums["purchase"],
        "each paid purchase has exactly one entry": _purchases_credited(transaction, account.id),
        "usage per day is the sum of the usage": usage_days == _not_archived(transaction, summed_days, usage_days),
        "reversal entries match the reversed payments": sums["reversal"] == -_reversed(transaction, account.id),
    }
    return [f"{account.id}: violated: {rule}." for rule, is_kept in rules.items() if not is_kept]


def _entry_sums(transaction: Transaction, account: str) -> Counter[str]:
    """Returns the sums of the account's entries, by kind."""
    table = models.Entry
    rows = transaction.rows(
        table.select(table.kind, fn.SUM(table.amount)).where(table.account == account).group_by(table.kind)
    )
    return Counter({kind: int(amount) for kind, amount in rows})


def _charges_of_holds(transaction: Transaction, account: str) -> dict[str, int]:
    """Returns the credits of the charges that belong to rows of holds, which are few, by hold."""
    table = models.Entry
    holds = models.Hold.select(models.Hold.id).where(models.Hold.account == account)
    own = (table.account == account) & (table.kind == "charge") & table.ref.in_(holds)
    return {entry.ref: -entry.amount for entry in transaction.all(table.select().where(own))}


def _purchases_credited(transaction: Transaction, account: str) -> bool:
    """Whether exactly the paid purchases were credited, each with its number of credits."""
    table = models.Purchase
    purchases = transaction.all(table.select().where((table.account == account) & table.session.is_null(False)))
    expected = {purchase.session: purchase.credits for purchase in purchases if purchase.state == "paid"}
    sessions = [purchase.session for purchase in purchases]
    entries = transaction.all(models.Entry.select().where(models.Entry.ref.in_(sessions)))
    return expected == {entry.ref: entry.amount for entry in entries}


def _usage(transaction: Transaction, account: str) -> _Sums:
    table = models.Usage
    day = SQL("at / 86400")
    common = (day, table.operation, table.input_format, table.output_format, table.success)
    sums = (fn.COUNT(SQL("*")), fn.SUM(table.credits), fn.SUM(table.bytes_in), fn.SUM(table.bytes_out))
    rows = transaction.rows(table.select(*common, *sums).where(table.account == account).group_by(*common))
    return {row[:5]: tuple(int(number) for number in row[5:]) for row in rows}


def _usage_per_day(transaction: Transaction, account: str) -> _Sums:
    table = models.UsageDay
    common = (table.day, table.operation, table.input_format, table.output_format, table.success)
    sums = (table.conversions, table.credits, table.bytes_in, table.bytes_out)
    rows = transaction.rows(table.select(*common, *sums).where(table.account == account))
    return {row[:5]: row[5:] for row in rows}


def _not_archived(transaction: Transaction, summed: _Sums, days: _Sums) -> _Sums:
    """The sums of days that are not archived, and of those whose usage is not deleted yet."""
    before = transaction.rows(models.Archive.select(fn.MAX(models.Archive.before)))[0][0] or 0
    kept = {day for day, *_ in days}
    return {key: sums for key, sums in summed.items() if key[0] in kept or key[0] * 86_400 >= before}


def _reversed(transaction: Transaction, account: str) -> int:
    """Credits removed because payments were reversed."""
    own = models.Purchase.select(models.Purchase.purchase_id).where(models.Purchase.account == account)
    payments = transaction.all(models.Payment.select().where(models.Payment.purchase.in_(own)))
    return sum(payment.reversed - payment.shortfall for payment in payments)
