"""Payments through Stripe: checkout sessions, webhook events, and the choice of the payment provider."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, TypeAlias

import stripe
from pydantic import BaseModel, ConfigDict, ValidationError
from stripe import SignatureVerificationError, WebhookSignature

from config.pricing import CURRENCY
from config.settings import Settings
from storage.database import Database
from storage.tables import purchases, refunds
from storage.tables.purchases import CheckoutReport, State
from storage.tables.refunds import Reversal
from web.api.errors import CheckoutUnavailable, InvalidParameter
from web.metrics.service import CreditMetrics
from web.services.checkout import Checkout, CheckoutOrder, CheckoutSession, Provider, SimulatedCheckout
from web.services.idempotency import IdempotencyService

log = logging.getLogger("convertd.payments")

_STEP_TIMEOUT = 8.0  # seconds for each step of an attempt, such as connecting
_TOTAL_TIMEOUT = 25.0  # seconds for all attempts together
_RETRIES = 2
_SESSION_LIFETIME = 23 * 3600  # seconds; Stripe allows 24 hours by its own clock
_SIGNATURE_TOLERANCE = 300  # seconds

_SESSION_EVENT = "checkout.session."
_PAID_EVENTS = ("completed", "async_payment_succeeded")
_FINAL_STATES: dict[str, State] = {"async_payment_failed": "failed", "expired": "expired"}
_REFUND_EVENTS = ("refund.created", "refund.updated", "refund.failed")
_UNDONE_REFUND = ("failed", "canceled")
_RETURNED_DISPUTE = ("won", "prevented")  # statuses of a dispute whose amount is not withheld, besides warnings
_CLOSED_DISPUTE = ("won", "lost", "prevented", "warning_closed")


class _StripeObject(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class EventData(_StripeObject):
    """The object of an event; its fields depend on the event's type."""

    object: dict[str, Any]


class Event(_StripeObject):
    """A webhook event. `created` is Unix time in seconds by Stripe's clock."""

    id: str
    type: str
    created: int = 0
    livemode: bool = False
    data: EventData


class StripeSession(_StripeObject):
    """A checkout session. Amounts are in minor units."""

    id: str
    client_reference_id: str | None = None
    payment_status: str | None = None
    payment_intent: str | None = None
    amount_total: int | None = None
    currency: str | None = None

    def report(self, event: Event) -> CheckoutReport:
        return CheckoutReport(
            session=self.id,
            purchase=self.client_reference_id,
            event=event.id,
            payment=self.payment_intent,
            amount=self.amount_total,
            currency=self.currency,
        )


class _StripeReversal(_StripeObject):
    id: str
    currency: str | None = None
    payment_intent: str | None = None


class StripeCharge(_StripeReversal):
    """A charge, with the sum of its refunds in minor units."""

    amount_refunded: int

    def reversal(self, event: Event) -> Reversal:
        return Reversal(self.id, self.payment_intent or "", "charge", self.amount_refunded, event.created, final=False)


class StripeRefund(_StripeReversal):
    """A refund, which can fail long after its creation."""

    amount: int
    status: str | None = None

    def reversal(self, event: Event) -> Reversal:
        undone = self.status in _UNDONE_REFUND
        amount = 0 if undone else self.amount
        return Reversal(self.id, self.payment_intent or "", "refund", amount, event.created, final=undone)


class StripeDispute(_StripeReversal):
    """A dispute. Stripe withholds its amount until the dispute is won, unless it is only a warning."""

    amount: int
    status: str

    def reversal(self, event: Event) -> Reversal:
        withheld = self.status not in _RETURNED_DISPUTE and not self.status.startswith("warning_")
        amount, final = self.amount if withheld else 0, self.status in _CLOSED_DISPUTE
        return Reversal(self.id, self.payment_intent or "", "dispute", amount, event.created, final=final)


StripeReversal: TypeAlias = StripeCharge | StripeRefund | StripeDispute


def parse_reversal(event: Event) -> StripeReversal | None:
    """The charge, refund or dispute of an event; None for events of other types."""
    if event.type == "charge.refunded":
        return StripeCharge.model_validate(event.data.object)
    if event.type in _REFUND_EVENTS:
        return StripeRefund.model_validate(event.data.object)
    if event.type.startswith("charge.dispute."):
        return StripeDispute.model_validate(event.data.object)
    return None


class StripeCheckout:
    """Opens checkout sessions at Stripe. The order's id is the idempotency key, so retries open no second session."""

    def __init__(
        self, key: str, secrets: tuple[str, ...], api_base: str, *, total_timeout: float = _TOTAL_TIMEOUT
    ) -> None:
        self.secrets = secrets
        self.live = key.startswith(("sk_live_", "rk_live_"))
        self._total_timeout = total_timeout
        self._http = stripe.HTTPXClient(timeout=_STEP_TIMEOUT)
        self._client = stripe.StripeClient(
            key, base_addresses={"api": api_base}, http_client=self._http, max_network_retries=_RETRIES
        )

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        try:
            async with asyncio.timeout(self._total_timeout):
                session = await self._client.v1.checkout.sessions.create_async(
                    _session_parameters(order), {"idempotency_key": order.id}
                )
            if session.url is None:
                raise AttributeError("url")
            return CheckoutSession(session.id, session.url, session.expires_at)
        except (stripe.StripeError, TimeoutError, AttributeError) as error:
            fields = {"purchase": order.id, "error": type(error).__name__, "code": getattr(error, "code", None)}
            log.error("Stripe opened no checkout: %s", error, extra={"fields": fields})
            raise CheckoutUnavailable from None

    async def close(self) -> None:
        await self._http.close_async()  # type: ignore[no-untyped-call]


def _session_parameters(order: CheckoutOrder) -> stripe.params.checkout.SessionCreateParams:
    metadata = {"purchase": order.id, "pack": order.pack.name}
    return {
        "mode": "payment",
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": CURRENCY,
                    "unit_amount": order.pack.price,
                    "product_data": {"name": f"convertd: {order.pack.credits} credits"},
                },
            }
        ],
        "client_reference_id": order.id,
        "customer_email": order.email,
        "metadata": metadata,
        "payment_intent_data": {"metadata": metadata},
        "locale": order.language,
        "success_url": order.success_url,
        "cancel_url": order.cancel_url,
        "expires_at": int(time.time()) + _SESSION_LIFETIME,
    }


class PaymentEvents:
    """Processes the provider's webhook events. They can arrive repeatedly, concurrently and in any order."""

    def __init__(self, database: Database, provider: Provider | None, metrics: CreditMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._secrets = provider.secrets if provider else ()
        self._live = bool(provider and provider.live)

    async def receive(self, body: bytes, signature: str | None) -> None:
        """Applies an event. An event that does not belong to a purchase of this service is only logged.

        Raises InvalidParameter if the signature is not the provider's, or the event is malformed.
        """
        self._verify(body, signature)
        try:
            event = Event.model_validate_json(body)
            if event.livemode != self._live:
                _log(logging.ERROR, "wrong mode", event)
            elif event.type.startswith(_SESSION_EVENT):
                await self._on_session(event, StripeSession.model_validate(event.data.object))
            elif (reversal := parse_reversal(event)) is not None:
                await self._on_reversal(event, reversal)
            else:
                _log(logging.INFO, "ignored", event)
        except ValidationError:
            raise InvalidParameter("The event is malformed.", reason="malformed") from None

    def _verify(self, body: bytes, signature: str | None) -> None:
        if not any(_is_signed(body, signature or "", secret) for secret in self._secrets):
            message = "The event is not signed by the payment provider, or too old."
            raise InvalidParameter(message, reason="invalid_signature", param="Stripe-Signature")

    async def _on_session(self, event: Event, session: StripeSession) -> None:
        kind, report = event.type.removeprefix(_SESSION_EVENT), session.report(event)
        if kind in _PAID_EVENTS and session.payment_status == "paid":
            outcome = await self._database.run(purchases.pay, report)
            if outcome == "credited" and (purchase := await self._database.run(purchases.find, session.id)):
                self._metrics.granted.labels("purchase").inc(purchase.credits)
        elif kind in _PAID_EVENTS:
            outcome = await self._database.run(purchases.set_state, report, "processing")
        elif kind in _FINAL_STATES:
            outcome = await self._database.run(purchases.set_state, report, _FINAL_STATES[kind])
        else:
            outcome = "unchanged"
        level = logging.ERROR if outcome == "mismatch" else logging.INFO
        _log(level, outcome, event, session=session.id, purchase=session.client_reference_id)

    async def _on_reversal(self, event: Event, received: StripeReversal) -> None:
        reversal = received.reversal(event)
        if not reversal.payment:
            _log(logging.INFO, "unknown_purchase", event, reversal=reversal.id)
        elif received.currency not in (None, CURRENCY):
            _log(logging.ERROR, "mismatch", event, reversal=reversal.id)
        else:
            change = await self._database.run(refunds.record, reversal, event.id)
            credits, account = (change.credits, change.account) if change else (None, None)
            _log(logging.INFO, "updated", event, reversal=reversal.id, account=account, credits=credits)


def _is_signed(body: bytes, signature: str, secret: str) -> bool:
    try:
        # Constant-time comparison requires ASCII.
        return signature.isascii() and WebhookSignature.verify_header(body, signature, secret, _SIGNATURE_TOLERANCE)
    except (SignatureVerificationError, UnicodeDecodeError):
        return False


def _log(level: int, outcome: str, event: Event, **details: object) -> None:
    fields = {"event": event.id, "type": event.type, "outcome": outcome, **details}
    log.log(level, "payment event", extra={"fields": fields})


@dataclass(frozen=True)
class Payments:
    """The checkout and the webhook events of one provider. `simulation` is set if the provider is simulated."""

    checkout: Checkout
    events: PaymentEvents
    simulation: SimulatedCheckout | None


def open_payments(
    settings: Settings, database: Database, idempotency: IdempotencyService, metrics: CreditMetrics
) -> Payments:
    """Payments through Stripe if its keys are set; simulated if the settings ask for it; else disabled."""
    root = settings.base_url.removesuffix("/api/v1")
    provider = _provider(settings, root)
    simulation = provider if isinstance(provider, SimulatedCheckout) else None
    if simulation:
        log.warning("checkout is simulated: clients on this machine get credits for free")
    elif provider is None:
        log.warning("credits cannot be bought: no Stripe keys are set")
    checkout = Checkout(database, provider, root, idempotency)
    return Payments(checkout, PaymentEvents(database, provider, metrics), simulation)


def _provider(settings: Settings, root: str) -> Provider | None:
    key, secret = settings.stripe_secret_key, settings.stripe_webhook_secret
    if key is not None and secret is not None:
        secrets = tuple(part.strip() for part in secret.get_secret_value().split(",") if part.strip())
        return StripeCheckout(key.get_secret_value(), secrets, settings.stripe_api_base)
    return SimulatedCheckout(root) if settings.simulated_checkout else None
