"""Refunds, disputes and chargebacks: removes the credits of reversed payments, as far as they are unspent.

Events arrive in any order and concurrently. Each transaction locks the payment's row, which is created by the first
event that names the payment.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage.database import Transaction
from storage.tables import ledger, models

Kind: TypeAlias = Literal["refund", "dispute", "charge"]


@dataclass(frozen=True)
class Reversal:
    """The state of a refund, of a dispute, or of all refunds of a charge (then `id` is the charge's).

    `amount` is in minor units, 0 if the reversal failed or was withdrawn. `at` is Unix time in seconds. Of two states
    of the same second, a `final` one takes precedence, then the larger amount.
    """

    id: str
    payment: str
    kind: Kind
    amount: int
    at: int
    final: bool


@dataclass(frozen=True)
class RefundResult:
    """The change of an account's balance in credits; negative if credits were removed."""

    account: str
    credits: int


def record(transaction: Transaction, reversal: Reversal, event: str) -> RefundResult | None:
    """Records a reversal and adjusts the account's credits. `event` is the id of the provider's event.

    Returns None if a newer state is recorded already or the payment's purchase is not known yet.
    """
    payment = _lock_payment(transaction, reversal.payment)
    return _adjust(transaction, payment, event) if _save_if_newer(transaction, reversal) else None


def link_purchase(transaction: Transaction, payment: str, purchase: str, event: str) -> None:
    """Records the purchase of a payment and applies reversals that were recorded before."""
    row = _lock_payment(transaction, payment)
    if row.purchase is None:
        row.purchase = purchase
        transaction.execute(models.Payment.update(purchase=purchase).where(models.Payment.id == payment))
        _adjust(transaction, row, event)


def _lock_payment(transaction: Transaction, payment: str) -> models.Payment:
    table = models.Payment
    transaction.insert_ignore(table.insert(id=payment, reversed=0, shortfall=0))
    row = transaction.select_for_update(table.select().where(table.id == payment))
    assert row is not None  # rows are never deleted
    return row


def _save_if_newer(transaction: Transaction, reversal: Reversal) -> bool:
    """Saves the reversal unless the recorded state is the same or newer. Returns whether it was saved."""
    table = models.Reversal
    if transaction.insert_ignore(table.insert(**vars(reversal))):
        return True
    recorded = transaction.select_for_update(table.select().where(table.id == reversal.id))
    assert recorded is not None  # rows are never deleted
    if (recorded.at, recorded.final, recorded.amount) >= (reversal.at, reversal.final, reversal.amount):
        return False
    transaction.execute(table.update(**vars(reversal)).where(table.id == reversal.id))
    return True


def _adjust(transaction: Transaction, payment: models.Payment, event: str) -> RefundResult | None:
    """Adds or removes credits until they match the payment's reversals."""
    purchase = transaction.first(models.Purchase.select().where(models.Purchase.purchase_id == payment.purchase))
    if purchase is None:
        return None
    reversed_amount = min(purchase.amount, _reversed_amount(transaction, payment.id))
    reversed_credits = purchase.credits * reversed_amount // purchase.amount
    difference = reversed_credits - payment.reversed
    if difference > 0:
        removed = ledger.claw_back(transaction, purchase.account, difference, ref=event)
        credits = -removed
        shortfall = payment.shortfall + difference - removed
    else:
        # Credits that could not be removed earlier are not returned.
        shortfall = max(0, payment.shortfall + difference)
        credits = -difference - (payment.shortfall - shortfall)
        if credits:
            ledger.credit(transaction, purchase.account, "reversal", credits, ref=event)
    changes = {"reversed": reversed_credits, "shortfall": shortfall}
    transaction.execute(models.Payment.update(changes).where(models.Payment.id == payment.id))
    return RefundResult(purchase.account, credits)


def _reversed_amount(transaction: Transaction, payment: str) -> int:
    """Returns the reversed amount in minor units. Single refunds take precedence over the sum of the charge."""
    amounts: Counter[str] = Counter()
    rows = transaction.all(models.Reversal.select().where(models.Reversal.payment == payment))
    for row in rows:
        amounts[row.kind] += row.amount
    refunds = "refund" if any(row.kind == "refund" for row in rows) else "charge"
    return amounts[refunds] + amounts["dispute"]
