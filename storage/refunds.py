"""Reversals: money that goes back takes its credits with it, as far as they are not spent.

A payment's row is locked by whoever learns of it, so that its purchase and its reversals find each other in
whatever order, and however close to each other, they become known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage import ledger, models
from storage.transaction import Transaction

Kind: TypeAlias = Literal["refund", "dispute", "charge"]


@dataclass(frozen=True)
class Reversal:
    """A refund or a dispute by its id, or all refunds of a charge by the charge's, as it stands `at` a time.

    `amount` is in minor units, and 0 where the money stayed or came back. Of what is said of the same second,
    that which is `final` counts, and then what comes to more.
    """

    id: str
    payment: str
    kind: Kind
    amount: int
    at: int
    final: bool


@dataclass(frozen=True)
class RefundResult:
    """What came of it: the credits that an account got (fewer than 0 where it lost them)."""

    account: str
    credits: int


def note(transaction: Transaction, reversal: Reversal, event: str) -> RefundResult | None:
    """Takes credits back, or gives them back, for a reversal as `event` tells it.

    None where what is known is newer, or where the payment is for nothing that is known so far.
    """
    payment = _locked(transaction, reversal.payment)
    return _adjust(transaction, payment, event) if _newest(transaction, reversal) else None


def claim(transaction: Transaction, payment: str, purchase: str, event: str) -> None:
    """Notes what the payment is for. What went back before is taken into account now."""
    row = _locked(transaction, payment)
    if row.purchase is None:
        row.purchase = purchase
        transaction.change(models.Payment.update(purchase=purchase).where(models.Payment.id == payment))
        _adjust(transaction, row, event)


def _locked(transaction: Transaction, payment: str) -> models.Payment:
    table = models.Payment
    transaction.add_if_new(table.insert(id=payment, reversed=0, shortfall=0))
    row = transaction.locked(table.select().where(table.id == payment))
    assert row is not None  # rows are never deleted
    return row


def _newest(transaction: Transaction, reversal: Reversal) -> bool:
    """Keeps the reversal unless what is known of it is newer; says whether it did."""
    table = models.Reversal
    row = {
        "id": reversal.id,
        "payment": reversal.payment,
        "kind": reversal.kind,
        "amount": reversal.amount,
        "at": reversal.at,
        "final": reversal.final,
    }
    if transaction.add_if_new(table.insert(row)):
        return True
    known = transaction.locked(table.select().where(table.id == reversal.id))
    assert known is not None
    if (known.at, known.final, known.amount) >= (reversal.at, reversal.final, reversal.amount):
        return False
    transaction.change(table.update(row).where(table.id == reversal.id))
    return True


def _adjust(transaction: Transaction, payment: models.Payment, event: str) -> RefundResult | None:
    """Brings the account to where the payment's reversals want it."""
    purchase = transaction.first(models.Purchase.select().where(models.Purchase.id == payment.purchase))
    if purchase is None:
        return None
    returned = min(purchase.amount, _returned(transaction, payment.id))
    reversed_credits = purchase.credits * returned // purchase.amount
    more = reversed_credits - payment.reversed
    if more > 0:
        taken = ledger.claw_back(transaction, purchase.account, more, ref=event)
        credits, shortfall = -taken, payment.shortfall + more - taken
    else:
        # What was lacking when it was taken is not given back either.
        shortfall = max(0, payment.shortfall + more)
        credits = -more - (payment.shortfall - shortfall)
        if credits:
            ledger.credit(transaction, purchase.account, "reversal", credits, ref=event)
    changes = {"reversed": reversed_credits, "shortfall": shortfall}
    transaction.change(models.Payment.update(changes).where(models.Payment.id == payment.id))
    return RefundResult(purchase.account, credits)


def _returned(transaction: Transaction, payment: str) -> int:
    """The money that went back, in minor units. Refunds say more than the charge's sum of them."""
    amounts: Counter[str] = Counter()
    rows = transaction.all(models.Reversal.select().where(models.Reversal.payment == payment))
    for row in rows:
        amounts[row.kind] += row.amount
    refunds = "refund" if any(row.kind == "refund" for row in rows) else "charge"
    return amounts[refunds] + amounts["dispute"]
