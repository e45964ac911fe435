"""Purchases: a pack, from the checkout that is opened for it to the credits that come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage import ledger, models, refunds
from storage.ids import new_id
from storage.transaction import Transaction

State: TypeAlias = Literal["opening", "open", "processing", "failed", "expired", "paid"]
Outcome: TypeAlias = Literal["credited", "noted", "known", "foreign", "mismatch"]

_ABANDONED = 86_400  # seconds after which nobody will open a checkout any more
_PROGRESS: tuple[State, ...] = ("opening", "open", "processing", "failed", "expired", "paid")


@dataclass(frozen=True)
class Purchase:
    """A purchase as it stands. `amount` is in minor units of the currency, times are Unix time in whole seconds."""

    id: str
    account: str
    pack: str
    credits: int
    amount: int
    currency: str
    state: str
    session: str | None
    expires_at: int | None


@dataclass(frozen=True)
class CheckoutReport:
    """What the provider says of one of its checkout sessions, and the purchase that it was told it was for.

    `event` is the id of the message that says so.
    """

    session: str
    purchase: str | None
    event: str
    payment: str | None = None
    amount: int | None = None
    currency: str | None = None


def begin(transaction: Transaction, account: str, pack: str, credits: int, amount: int, currency: str) -> str:
    """Notes what is about to be bought, before the provider is asked; gives the purchase's id."""
    row = {
        "id": new_id("pur"),
        "account": account,
        "pack": pack,
        "credits": credits,
        "amount": amount,
        "currency": currency,
        "state": "opening",
        "created_at": transaction.now,
    }
    transaction.add(models.Purchase.insert(row))
    return str(row["id"])


def opened(transaction: Transaction, purchase: str, session: str, expires_at: int) -> None:
    """Notes the checkout session. What the provider has told of it in the meantime stands."""
    table = models.Purchase
    noted = {table.session: session, table.expires_at: expires_at}
    transaction.change(table.update(noted).where(table.id == purchase))
    opening = (table.id == purchase) & (table.state == "opening")
    transaction.change(table.update({table.state: "open"}).where(opening))


def abandon(transaction: Transaction, purchase: str) -> None:
    """Forgets a purchase for which no checkout could be opened."""
    table = models.Purchase
    transaction.change(table.delete().where((table.id == purchase) & (table.state == "opening")))


def sweep(transaction: Transaction) -> int:
    """Forgets those that a crash has left without a checkout; says how many."""
    table = models.Purchase
    left = (table.state == "opening") & (table.created_at + _ABANDONED <= transaction.now)
    return transaction.change(table.delete().where(left))


def find(transaction: Transaction, session: str) -> Purchase | None:
    """The purchase of a checkout session, if it is one of ours."""
    row = transaction.first(models.Purchase.select().where(models.Purchase.session == session))
    if row is None:
        return None
    return Purchase(
        id=row.id,
        account=row.account,
        pack=row.pack,
        credits=row.credits,
        amount=row.amount,
        currency=row.currency,
        state=row.state,
        session=row.session,
        expires_at=row.expires_at,
    )


def pay(transaction: Transaction, report: CheckoutReport) -> Outcome:
    """The credits of a session that is paid come in, once however often this is called.

    They are what we have noted, not what the report says; a report of another price gives nothing.
    """
    row = _reported(transaction, report)
    if row is None:
        return "foreign"
    if (report.amount, report.currency) != (row.amount, row.currency):
        return "mismatch"
    if not ledger.credit(transaction, row.account, "purchase", row.credits, ref=report.session).fresh:
        return "known"
    changes = {"state": "paid", "session": report.session, "event": report.event, "paid_at": transaction.now}
    transaction.change(models.Purchase.update(changes).where(models.Purchase.id == row.id))
    if report.payment is not None:
        refunds.claim(transaction, report.payment, row.id, report.event)
    return "credited"


def progress(transaction: Transaction, report: CheckoutReport, state: State) -> Outcome:
    """Notes how far a session that is not paid has come. It never goes back, however late a report arrives."""
    row = _reported(transaction, report)
    if row is None:
        return "foreign"
    if _PROGRESS.index(state) <= _PROGRESS.index(row.state):
        return "known"
    changes = {"state": state, "session": report.session}
    transaction.change(models.Purchase.update(changes).where(models.Purchase.id == row.id))
    return "noted"


def _reported(transaction: Transaction, report: CheckoutReport) -> models.Purchase | None:
    """The purchase that a report is of, locked. A report may come before its session has been noted."""
    table = models.Purchase
    named = (table.session == report.session) | (table.id == report.purchase)
    row = transaction.locked(table.select().where(named))
    return row if row is not None and row.session in (None, report.session) else None
