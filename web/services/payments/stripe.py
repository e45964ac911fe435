"""Payments through Stripe: checkout sessions, webhook events, and the choice of the payment provider."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, ValidationError

from config.pricing import CURRENCY
from config.settings import Settings
from engine.lazy import lazy_imports
from storage.database import Database
from storage.ids import is_id
from storage.tables import purchases, refunds
from storage.tables.purchases import CheckoutReport, Purchase, State
from storage.tables.refunds import Kind, Reversal
from web.api.errors import CheckoutUnavailable, InvalidParameter
from web.metrics.service import CreditMetrics
from web.services.conversions.idempotency import IdempotencyService
from web.services.payments.checkout import (
    SESSION_LIFETIME,
    Checkout,
    CheckoutSession,
    Provider,
    SimulatedCheckout,
    return_urls,
)

if TYPE_CHECKING:  # slow to import, and many servers sell nothing
    from stripe.params.checkout import SessionCreateParams

with lazy_imports():
    import stripe

log = logging.getLogger("convertd.payments")

_STEP_TIMEOUT = 8.0  # seconds for each step of an attempt, such as connecting
TOTAL_TIMEOUT = 25.0  # seconds for all attempts together
_RETRIES = 2
_SIGNATURE_TOLERANCE = 300  # seconds

_SESSION_EVENT = "checkout.session."
_PAID_EVENTS = ("completed", "async_payment_succeeded")
_FINAL_STATES: dict[str, State] = {"async_payment_failed": "failed", "expired": "expired"}
_REVERSAL_EVENTS: dict[str, Kind] = {
    "charge.refunded": "charge",
    **dict.fromkeys(("refund.created", "refund.updated", "refund.failed"), "refund"),
}
_UNDONE_REFUND = ("failed", "canceled")
_RETURNED_DISPUTE = ("won", "prevented", "warning_")
_CLOSED_DISPUTE = ("won", "lost", "prevented", "warning_closed")


class _StripeObject(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Event(_StripeObject):
    """A webhook event. `created` is Unix time in seconds by Stripe's clock. The fields of `object` depend on `type`."""

    id: str
    type: str
    created: int = 0
    livemode: bool = False
    object: dict[str, Any] = Field(validation_alias=AliasPath("data", "object"))


class StripeCustomer(_StripeObject):
    """The details of a buyer that the checkout asks for."""

    name: str | None = None
    address: dict[str, str | None] | None = None
    tax_ids: list[dict[str, Any]] | None = None

    def lines(self) -> str | None:
        """The name, the address and the tax IDs in lines; None without an address."""
        parts = self.address or {}
        city = " ".join(filter(None, (parts.get("postal_code"), parts.get("city"))))
        street = [parts.get("line1"), parts.get("line2"), city, parts.get("state"), parts.get("country")]
        if not any(street):
            return None
        numbers = (str(one.get("value") or "") for one in self.tax_ids or ())
        return "\n".join(filter(None, (self.name, *street, *numbers)))


class StripeSession(_StripeObject):
    """A checkout session. Amounts are in minor units."""

    id: str
    client_reference_id: str | None = None
    payment_status: str | None = None
    payment_intent: str | None = None
    amount_total: int | None = None
    currency: str | None = None
    taxed: bool | None = Field(None, validation_alias=AliasPath("automatic_tax", "enabled"))
    tax: int | None = Field(None, validation_alias=AliasPath("total_details", "amount_tax"))
    customer: StripeCustomer | None = Field(None, validation_alias="customer_details")

    def report(self, event: Event) -> CheckoutReport:
        payment = self.payment_intent
        amount = self.amount_total
        tax = self.tax if self.taxed else None
        buyer = self.customer.lines() if self.customer else None
        return CheckoutReport(
            session=self.id,
            purchase=self.client_reference_id,
            event=event.id,
            payment=payment,
            amount=amount,
            currency=self.currency,
            tax=tax,
            buyer=buyer,
        )


class StripeReversal(_StripeObject):
    """A refund, a dispute, or a charge with the sum of its refunds. Amounts are in minor units."""

    id: str
    currency: str | None = None
    payment_intent: str | None = None
    amount: int = Field(validation_alias=AliasChoices("amount_refunded", "amount"))
    status: str | None = None

    def reversal(self, event: Event, kind: Kind) -> Reversal:
        status = self.status or ""
        undone = False
        final = False
        if kind == "refund":  # it can fail long after its creation
            undone = final = status in _UNDONE_REFUND
        elif kind == "dispute":  # its amount is withheld until the dispute is won, unless it is only a warning
            undone = status.startswith(_RETURNED_DISPUTE)
            final = status in _CLOSED_DISPUTE
        amount = 0 if undone else self.amount
        return Reversal(self.id, self.payment_intent or "", kind, amount, event.created, final)


def reversal_kind(event_type: str) -> Kind | None:
    """The kind of reversal that events of this type report; None for other events."""
    if event_type.startswith("charge.dispute."):
        return "dispute"
    return _REVERSAL_EVENTS.get(event_type)


class StripeCheckout:
    """Opens checkout sessions at Stripe. After payment, buyers return to the dashboard below the URL `root`.

    The purchase's id is the idempotency key, so retries open no second session. With `taxes`, Stripe asks for
    addresses, computes the tax in the price, and makes invoices.
    """

    def __init__(self, key: str, secrets: tuple[str, ...], api_base: str, root: str, *, taxes: bool = False) -> None:
        self.secrets = secrets
        self.live = key.startswith(("sk_live_", "rk_live_"))
        self._root = root
        self._taxes = taxes
        self._error = stripe.StripeError
        self._http = stripe.HTTPXClient(timeout=_STEP_TIMEOUT)
        self._client = stripe.StripeClient(
            key, base_addresses={"api": api_base}, http_client=self._http, max_network_retries=_RETRIES
        )

    async def open(self, purchase: Purchase, email: str, language: str) -> CheckoutSession:
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                session = await self._client.v1.checkout.sessions.create_async(
                    self._parameters(purchase, email, language), {"idempotency_key": purchase.purchase_id}
                )
            if session.url is None:
                raise AttributeError("url")
            return CheckoutSession(session.url, session.id, session.expires_at)
        except (self._error, TimeoutError, AttributeError) as error:
            code = getattr(error, "code", None)
            fields = {"purchase": purchase.purchase_id, "error": type(error).__name__, "code": code}
            log.error("Stripe opened no checkout: %s", error, extra={"fields": fields})
            raise CheckoutUnavailable from None

    def _parameters(self, purchase: Purchase, email: str, language: str) -> SessionCreateParams:
        success_url, cancel_url = return_urls(self._root, purchase.purchase_id)
        metadata = {"purchase": purchase.purchase_id, "pack": purchase.pack}
        taxes: SessionCreateParams = {
            "automatic_tax": {"enabled": True},
            "billing_address_collection": "required",
            "tax_id_collection": {"enabled": True},
            "invoice_creation": {"enabled": True},
        }
        return {
            **(taxes if self._taxes else {}),
            "mode": "payment",
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {
                        "currency": purchase.currency,
                        "unit_amount": purchase.amount,
                        "tax_behavior": "inclusive",
                        "product_data": {"name": f"convertd: {purchase.credits} credits"},
                    },
                }
            ],
            "client_reference_id": purchase.purchase_id,
            "customer_email": email,
            "metadata": metadata,
            "payment_intent_data": {"metadata": metadata},
            "locale": language,
            "success_url": success_url,
            "cancel_url": cancel_url,
            "expires_at": int(time.time()) + SESSION_LIFETIME,
        }

    async def close(self) -> None:
        await self._http.close_async()  # type: ignore[no-untyped-call]


class PaymentEvents:
    """Processes the provider's webhook events. They can arrive repeatedly, concurrently and in any order."""

    def __init__(self, database: Database, provider: Provider | None, metrics: CreditMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._secrets = provider.secrets if provider else ()
        self._live = bool(provider and provider.live)

    async def receive(self, body: bytes, signature: str | None) -> None:
        """Applies an event, and counts it by its outcome.

        An event that does not belong to a purchase of this service is only logged. Raises InvalidParameter if the
        signature is not the provider's, or the event is malformed.
        """
        outcome = "failed"
        try:
            self._verify(body, signature)
            outcome = await self._apply(body)
        except InvalidParameter as error:
            outcome = error.reason or outcome
            raise
        finally:
            self._metrics.payments.labels(outcome).inc()

    async def _apply(self, body: bytes) -> str:
        """Applies an event whose signature is valid, and logs it. Returns its outcome."""
        try:
            event = Event.model_validate_json(body)
            if event.livemode != self._live:
                return _log(logging.ERROR, "wrong_mode", event)
            if event.type.startswith(_SESSION_EVENT):
                return await self._on_session(event, StripeSession.model_validate(event.object))
            if kind := reversal_kind(event.type):
                return await self._on_reversal(event, kind, StripeReversal.model_validate(event.object))
            return _log(logging.INFO, "ignored", event)
        except ValidationError:
            raise InvalidParameter("The event is malformed.", reason="malformed") from None

    def _verify(self, body: bytes, signature: str | None) -> None:
        if not any(_is_signed(body, signature or "", secret) for secret in self._secrets):
            message = "The event is not signed by the payment provider, or too old."
            raise InvalidParameter(message, reason="invalid_signature", param="Stripe-Signature")

    async def _on_session(self, event: Event, session: StripeSession) -> str:
        kind = event.type.removeprefix(_SESSION_EVENT)
        report = session.report(event)
        if kind in _PAID_EVENTS and session.payment_status == "paid":
            outcome = await self._database.run(purchases.pay, report)
            if outcome == "unknown_purchase" and is_id("pur", session.client_reference_id or ""):
                outcome = "mismatch"  # it was paid, and its purchase is missing, for example after a restore
            if outcome == "credited" and (purchase := await self._database.run(purchases.find, session.id)):
                self._metrics.granted.labels("purchase").inc(purchase.credits)
        elif state := "processing" if kind in _PAID_EVENTS else _FINAL_STATES.get(kind):
            outcome = await self._database.run(purchases.set_state, report, state)
        else:
            outcome = "unchanged"
        level = logging.ERROR if outcome == "mismatch" else logging.INFO
        return _log(level, outcome, event, session=session.id, purchase=session.client_reference_id)

    async def _on_reversal(self, event: Event, kind: Kind, received: StripeReversal) -> str:
        reversal = received.reversal(event, kind)
        if not reversal.payment:
            return _log(logging.INFO, "unknown_purchase", event, reversal=reversal.id)
        if received.currency not in (None, CURRENCY):
            return _log(logging.ERROR, "mismatch", event, reversal=reversal.id)
        change = await self._database.run(refunds.record, reversal, event.id)
        credits, account = (change.credits, change.account) if change else (None, None)
        return _log(logging.INFO, "updated", event, reversal=reversal.id, account=account, credits=credits)


def _is_signed(body: bytes, signature: str, secret: str) -> bool:
    if not signature.isascii():  # required for the comparison in constant time
        return False
    try:
        return bool(stripe.WebhookSignature.verify_header(body, signature, secret, _SIGNATURE_TOLERANCE))
    except (stripe.SignatureVerificationError, UnicodeDecodeError):
        return False


def _log(level: int, outcome: str, event: Event, **details: object) -> str:
    """Logs an event. Returns its outcome."""
    fields = {"event": event.id, "type": event.type, "outcome": outcome, **details}
    log.log(level, "payment event", extra={"fields": fields})
    return outcome


@dataclass(frozen=True)
class Payments:
    """The checkout and the webhook events of one provider. `simulation` is set if the provider is simulated."""

    checkout: Checkout
    events: PaymentEvents
    simulation: SimulatedCheckout | None


def open_payments(
    settings: Settings, database: Database, idempotency: IdempotencyService, metrics: CreditMetrics, code: str
) -> Payments:
    """Payments through Stripe if its keys are set; simulated, with the code, if enabled; else disabled."""
    root = settings.base_url.removesuffix("/api/v1")
    key = settings.stripe_secret_key
    secret = settings.stripe_webhook_secret
    provider: Provider | None = None
    simulation: SimulatedCheckout | None = None
    if key is not None and secret is not None:
        secrets = tuple(part.strip() for part in secret.get_secret_value().split(",") if part.strip())
        provider = StripeCheckout(
            key.get_secret_value(), secrets, settings.stripe_api_base, root, taxes=bool(settings.operator_vat_id)
        )
    elif settings.simulated_checkout:
        provider = simulation = SimulatedCheckout(root, code)
        log.warning("checkout is simulated: with the code %s, credits are free", simulation.code)
    checkout = Checkout(settings, database, provider, idempotency, metrics)
    return Payments(checkout, PaymentEvents(database, provider, metrics), simulation)
