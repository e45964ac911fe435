"""Purchases of credit packs, from checkout to credited."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from peewee import JOIN, SQL, fn
from pydantic import Field

from storage.database.transaction import Transaction, columns, reading
from storage.field_types import PurchaseId
from storage.ids import new_id
from storage.tables import ledger, models, refunds

State: TypeAlias = Literal["opening", "open", "processing", "failed", "expired", "paid"]
Currency: TypeAlias = Literal["eur"]
Outcome: TypeAlias = Literal["credited", "updated", "unchanged", "unknown_purchase", "mismatch"]

_ABANDONED = 86_400  # seconds without a checkout session
_MAX_LISTED = 100
_PROGRESS: tuple[State, ...] = ("opening", "open", "processing", "failed", "expired", "paid")


@dataclass(frozen=True)
class Purchase:
    """A purchase. `refunded` is the number of credits removed because the payment was refunded or disputed."""

    purchase_id: PurchaseId
    account: Annotated[str, Field(exclude=True)]
    pack: Annotated[str, Field(examples=["starter"])]
    credits: Annotated[int, Field(ge=1, examples=[500])]
    amount: Annotated[int, Field(ge=1, description="The price in cents.", examples=[500])]
    currency: Currency
    state: Annotated[State, Field(exclude=True)]
    created_at: Annotated[int, Field(exclude=True)]
    session: Annotated[str | None, Field(exclude=True)] = None
    expires_at: Annotated[int | None, Field(exclude=True)] = None
    paid_at: Annotated[int | None, Field(exclude=True)] = None
    refunded: Annotated[int, Field(exclude=True)] = 0
    tax: Annotated[int | None, Field(exclude=True)] = None
    buyer: Annotated[str | None, Field(exclude=True)] = None


@dataclass(frozen=True)
class CheckoutReport:
    """The state of a checkout session as reported by the payment provider.

    `purchase` is the id that the session was created with, `event` the id of the provider's event. `amount` and
    the `tax` in it are in minor units, `buyer` is an address in lines.
    """

    session: str
    purchase: str | None
    event: str
    payment: str | None = None
    amount: int | None = None
    currency: str | None = None
    tax: int | None = None
    buyer: str | None = None


def begin(transaction: Transaction, account: str, pack: str, credits: int, amount: int, currency: Currency) -> Purchase:
    """Records a purchase before its checkout session is created."""
    purchase = Purchase(
        purchase_id=new_id("pur"),
        account=account,
        pack=pack,
        credits=credits,
        amount=amount,
        currency=currency,
        state="opening",
        created_at=transaction.now,
    )
    row = {name: value for name, value in vars(purchase).items() if name not in ("refunded", "tax", "buyer")}
    transaction.insert(models.Purchase.insert(row))
    return purchase


def set_session(transaction: Transaction, purchase: str, session: str, expires_at: int) -> None:
    """Records the checkout session. Keeps a state that the provider has reported in the meantime."""
    table = models.Purchase
    changes = {table.session: session, table.expires_at: expires_at}
    transaction.execute(table.update(changes).where(table.purchase_id == purchase))
    opening = (table.purchase_id == purchase) & (table.state == "opening")
    transaction.execute(table.update({table.state: "open"}).where(opening))


def abandon(transaction: Transaction, purchase: str) -> None:
    """Deletes a purchase whose checkout session could not be created."""
    table = models.Purchase
    transaction.execute(table.delete().where((table.purchase_id == purchase) & (table.state == "opening")))


def delete_abandoned(transaction: Transaction) -> int:
    """Deletes purchases that have had no checkout session for a day. Returns their number."""
    table = models.Purchase
    # The partial index purchase_opening is used only if the condition of its rows is part of the text.
    abandoned = SQL("state = 'opening'") & (table.created_at <= transaction.now - _ABANDONED)
    return transaction.execute(table.delete().where(abandoned))


@reading
def find(transaction: Transaction, session: str) -> Purchase | None:
    """Returns the purchase of a checkout session, or None."""
    return next(iter(_select(transaction, models.Purchase.session == session)), None)


@reading
def find_of_account(transaction: Transaction, account: str, purchase: str) -> Purchase | None:
    """Returns the purchase with this id, or None if the account has none."""
    table = models.Purchase
    return next(iter(_select(transaction, (table.purchase_id == purchase) & (table.account == account))), None)


@reading
def list_payments(transaction: Transaction, account: str) -> tuple[Purchase, ...]:
    """Returns the account's latest purchases with a payment, also a pending or failed one, newest first."""
    table = models.Purchase
    return _select(transaction, (table.account == account) & table.state.in_(("processing", "failed", "paid")))


def _select(transaction: Transaction, condition: Any) -> tuple[Purchase, ...]:
    """Returns the latest purchases, newest first."""
    table = models.Purchase
    payment = models.Payment
    query = table.select(*columns(table, Purchase, refunded=fn.COALESCE(payment.reversed, 0)))
    query = query.join(payment, JOIN.LEFT_OUTER, on=(payment.purchase == table.purchase_id)).where(condition)
    newest_first = query.order_by(table.created_at.desc(), table.purchase_id.desc())
    return transaction.values(Purchase, newest_first.limit(_MAX_LISTED))


def pay(transaction: Transaction, report: CheckoutReport) -> Outcome:
    """Credits a paid purchase. Idempotent per session.

    Credits the number recorded with the purchase. Returns "mismatch" and credits nothing if the reported price
    differs.
    """
    row = _find_for_update(transaction, report)
    if row is None:
        return "unknown_purchase"
    if (report.amount, report.currency) != (row.amount, row.currency):
        return "mismatch"
    if not ledger.credit(transaction, row.account, "purchase", row.credits, ref=report.session).added:
        return "unchanged"
    changes = {"state": "paid", "session": report.session, "event": report.event, "paid_at": transaction.now}
    changes |= {"tax": report.tax, "buyer": report.buyer}
    transaction.execute(models.Purchase.update(changes).where(models.Purchase.purchase_id == row.purchase_id))
    if report.payment is not None:
        refunds.link_purchase(transaction, report.payment, row.purchase_id, report.event)
    return "credited"


def set_state(transaction: Transaction, report: CheckoutReport, state: State) -> Outcome:
    """Records the state of an unpaid session. Ignores late reports of an earlier state."""
    row = _find_for_update(transaction, report)
    if row is None:
        return "unknown_purchase"
    if _PROGRESS.index(state) <= _PROGRESS.index(row.state):
        return "unchanged"
    changes = {"state": state, "session": report.session}
    transaction.execute(models.Purchase.update(changes).where(models.Purchase.purchase_id == row.purchase_id))
    return "updated"


def _find_for_update(transaction: Transaction, report: CheckoutReport) -> models.Purchase | None:
    """Returns the purchase of a report, locked. Its session may not have been recorded yet."""
    table = models.Purchase
    matching = (table.session == report.session) | (table.purchase_id == report.purchase)
    row = transaction.select_for_update(table.select().where(matching))
    return row if row is not None and row.session in (None, report.session) else None
