"""What Stripe tells by its webhook, as far as we read it."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

from storage.purchases import Report
from storage.reversals import Reversal

_UNDONE_REFUND = ("failed", "canceled")
_MONEY_IS_HERE = ("won", "prevented")  # statuses of a dispute, besides those of mere warnings
_CLOSED = ("won", "lost", "prevented", "warning_closed")


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Content(_Told):
    """What an event is about: fields that depend on its type."""

    object: dict[str, Any]


class Event(_Told):
    """Something that happened. `created` is Stripe's Unix time in whole seconds."""

    id: str
    type: str
    created: int = 0
    livemode: bool = False
    data: Content


class CheckoutSession(_Told):
    """A checkout session; amounts are in minor units."""

    id: str
    client_reference_id: str | None = None
    payment_status: str | None = None
    payment_intent: str | None = None
    amount_total: int | None = None
    currency: str | None = None

    def report(self, event: Event) -> Report:
        return Report(
            session=self.id,
            purchase=self.client_reference_id,
            event=event.id,
            payment=self.payment_intent,
            amount=self.amount_total,
            currency=self.currency,
        )


class _Returned(_Told):
    id: str
    currency: str | None = None
    payment_intent: str | None = None


class Charge(_Returned):
    """A charge, with the sum of its refunds in minor units."""

    amount_refunded: int

    def reversal(self, event: Event) -> Reversal:
        return Reversal(self.id, self.payment_intent or "", "charge", self.amount_refunded, event.created, final=False)


class Refund(_Returned):
    """A refund, which may fail long after it was made."""

    amount: int
    status: str | None = None

    def reversal(self, event: Event) -> Reversal:
        undone = self.status in _UNDONE_REFUND
        amount = 0 if undone else self.amount
        return Reversal(self.id, self.payment_intent or "", "refund", amount, event.created, final=undone)


class Dispute(_Returned):
    """A dispute. Until it is won its money is away, unless it is only a warning."""

    amount: int
    status: str

    def reversal(self, event: Event) -> Reversal:
        here = self.status in _MONEY_IS_HERE or self.status.startswith("warning_")
        final = self.status in _CLOSED
        return Reversal(
            self.id, self.payment_intent or "", "dispute", 0 if here else self.amount, event.created, final=final
        )


Returned: TypeAlias = Charge | Refund | Dispute


def returned(event: Event) -> Returned | None:
    """The reversal that an event is about, if it is about one."""
    if event.type == "charge.refunded":
        return Charge.model_validate(event.data.object)
    if event.type in ("refund.created", "refund.updated", "refund.failed"):
        return Refund.model_validate(event.data.object)
    if event.type.startswith("charge.dispute."):
        return Dispute.model_validate(event.data.object)
    return None
