"""The audit: whether the ledger adds up, looked at from outside of the code that writes it."""

from __future__ import annotations

from peewee import fn

from storage import models
from storage.transaction import Transaction


def check(transaction: Transaction, account: str | None = None) -> tuple[str, ...]:
    """What is wrong with the ledger, or with one account, a sentence each; nothing where it is sound.

    It reads all that there is, which is for operators and tests, not for requests.
    """
    query = models.Account.select()
    accounts = transaction.all(query if account is None else query.where(models.Account.id == account))
    return tuple(problem for row in accounts for problem in _wrong_with(transaction, row))


def _wrong_with(transaction: Transaction, account: models.Account) -> list[str]:
    journal = _journal(transaction, account.id)
    holds = _holds(transaction, account.id)
    charges = _charges(transaction, account.id)
    settled = {hold: amount for hold, (state, amount) in holds.items() if state == "settled"}
    open_amount = sum(amount for state, amount in holds.values() if state == "held")
    rules = {
        "the journal is the balance and what is held": sum(journal.values()) == account.balance + account.held,
        "what is held is the sum of the open holds": account.held == open_amount,
        "balance and held are not negative": account.balance >= 0 and account.held >= 0,
        "each settled hold has its one charge": charges == settled,
        "used is the sum of the charges": account.used == sum(charges.values()),
        "purchased is the sum of the purchases": account.purchased == journal.get("purchase", 0),
        "each paid purchase has its one entry": _paid(transaction, account.id),
        "what reversals took is what the payments lost": journal.get("reversal", 0)
        == -_reversed(transaction, account.id),
    }
    return [f"{account.id}: not so: {rule}." for rule, holds_true in rules.items() if not holds_true]


def _journal(transaction: Transaction, account: str) -> dict[str, int]:
    """The sums of the entries by their kind."""
    table = models.Entry
    query = table.select(table.kind, fn.SUM(table.amount)).where(table.account == account).group_by(table.kind)
    return {kind: int(amount) for kind, amount in transaction.tuples(query)}


def _holds(transaction: Transaction, account: str) -> dict[str, tuple[str, int]]:
    query = models.Hold.select().where(models.Hold.account == account)
    return {hold.id: (hold.state, hold.amount) for hold in transaction.all(query)}


def _charges(transaction: Transaction, account: str) -> dict[str, int]:
    table = models.Entry
    query = table.select().where((table.account == account) & (table.kind == "charge"))
    return {entry.ref: -entry.amount for entry in transaction.all(query)}


def _paid(transaction: Transaction, account: str) -> bool:
    """Whether each purchase that is paid, and none that is not, has brought its credits."""
    table = models.Purchase
    purchases = transaction.all(table.select().where((table.account == account) & table.session.is_null(False)))
    wanted = {purchase.session: purchase.credits for purchase in purchases if purchase.state == "paid"}
    sessions = [purchase.session for purchase in purchases]
    entries = transaction.all(models.Entry.select().where(models.Entry.ref.in_(sessions)))
    return wanted == {entry.ref: entry.amount for entry in entries}


def _reversed(transaction: Transaction, account: str) -> int:
    """The credits that went because money went back."""
    mine = models.Purchase.select(models.Purchase.id).where(models.Purchase.account == account)
    payments = transaction.all(models.Payment.select().where(models.Payment.purchase.in_(mine)))
    return sum(payment.reversed - payment.shortfall for payment in payments)
