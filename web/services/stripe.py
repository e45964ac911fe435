"""What Stripe tells by its webhook, as far as we read it."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import stripe
from pydantic import BaseModel, ConfigDict, ValidationError
from stripe import SignatureVerificationError, WebhookSignature

from config.pricing import CURRENCY
from config.settings import Settings
from storage import purchases, refunds
from storage.database import Database
from storage.purchases import CheckoutReport, State
from storage.refunds import Reversal
from web.api.errors import CheckoutUnavailable, InvalidParameter
from web.metrics.service import CreditMetrics
from web.services.checkout import Checkout, CheckoutOrder, CheckoutSession, Provider, SimulatedCheckout
from web.services.client_address import is_loopback
from web.services.idempotency import IdempotencyService

_UNDONE_REFUND = ("failed", "canceled")
_MONEY_IS_HERE = ("won", "prevented")  # statuses of a dispute, besides those of mere warnings
_CLOSED = ("won", "lost", "prevented", "warning_closed")


class _StripeObject(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Content(_StripeObject):
    """What an event is about: fields that depend on its type."""

    object: dict[str, Any]


class Event(_StripeObject):
    """Something that happened. `created` is Stripe's Unix time in whole seconds."""

    id: str
    type: str
    created: int = 0
    livemode: bool = False
    data: Content


class StripeSession(_StripeObject):
    """A checkout session; amounts are in minor units."""

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


class _Reversal(_StripeObject):
    id: str
    currency: str | None = None
    payment_intent: str | None = None


class StripeCharge(_Reversal):
    """A charge, with the sum of its refunds in minor units."""

    amount_refunded: int

    def reversal(self, event: Event) -> Reversal:
        return Reversal(self.id, self.payment_intent or "", "charge", self.amount_refunded, event.created, final=False)


class StripeRefund(_Reversal):
    """A refund, which may fail long after it was made."""

    amount: int
    status: str | None = None

    def reversal(self, event: Event) -> Reversal:
        undone = self.status in _UNDONE_REFUND
        amount = 0 if undone else self.amount
        return Reversal(self.id, self.payment_intent or "", "refund", amount, event.created, final=undone)


class StripeDispute(_Reversal):
    """A dispute. Until it is won its money is away, unless it is only a warning."""

    amount: int
    status: str

    def reversal(self, event: Event) -> Reversal:
        here = self.status in _MONEY_IS_HERE or self.status.startswith("warning_")
        final = self.status in _CLOSED
        return Reversal(
            self.id, self.payment_intent or "", "dispute", 0 if here else self.amount, event.created, final=final
        )


StripeReversal: TypeAlias = StripeCharge | StripeRefund | StripeDispute


def parse_reversal(event: Event) -> StripeReversal | None:
    """The reversal that an event is about, if it is about one."""
    if event.type == "charge.refunded":
        return StripeCharge.model_validate(event.data.object)
    if event.type in ("refund.created", "refund.updated", "refund.failed"):
        return StripeRefund.model_validate(event.data.object)
    if event.type.startswith("charge.dispute."):
        return StripeDispute.model_validate(event.data.object)
    return None


log = logging.getLogger("convertd.checkout")

_TIMEOUT = 8.0  # seconds for each step of a try
_RETRIES = 2
_TOTAL_TIMEOUT = 25.0  # seconds for all tries together
_LIFETIME = 23 * 3600  # seconds that a page lives: Stripe allows 24 hours by its own clock


class StripeCheckout:
    """Asks Stripe for pages. A try that is made again carries the order's id, so it opens no second page."""

    def __init__(self, key: str, secrets: tuple[str, ...], api_base: str, *, patience: float = _TOTAL_TIMEOUT) -> None:
        self.secrets = secrets
        self._patience = patience
        self.live = key.startswith(("sk_live_", "rk_live_"))
        self._http = stripe.HTTPXClient(timeout=_TIMEOUT)
        self._client = stripe.StripeClient(
            key, base_addresses={"api": api_base}, http_client=self._http, max_network_retries=_RETRIES
        )

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        try:
            async with asyncio.timeout(self._patience):
                made = await self._client.v1.checkout.sessions.create_async(
                    _session_parameters(order), {"idempotency_key": order.id}
                )
            if made.url is None:
                raise AttributeError("url")
            return CheckoutSession(made.id, made.url, made.expires_at)
        except (stripe.StripeError, TimeoutError, AttributeError) as error:
            fields = {"purchase": order.id, "error": type(error).__name__, "code": getattr(error, "code", None)}
            log.error("Stripe opened no checkout: %s", error, extra={"fields": fields})
            raise CheckoutUnavailable from None

    async def close(self) -> None:
        await self._http.close_async()  # type: ignore[no-untyped-call]


def _session_parameters(order: CheckoutOrder) -> stripe.params.checkout.SessionCreateParams:
    told = {"purchase": order.id, "pack": order.pack.name}
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
        "metadata": told,
        "payment_intent_data": {"metadata": told},
        "locale": order.language,
        "success_url": order.success_url,
        "cancel_url": order.cancel_url,
        "expires_at": int(time.time()) + _LIFETIME,
    }


_TOLERANCE = 300  # seconds that a message may be old
_SESSION = "checkout.session."
_PAID = ("completed", "async_payment_succeeded")
_ENDS: dict[str, State] = {"async_payment_failed": "failed", "expired": "expired"}


class PaymentEvents:
    """Hears the provider. Messages may come repeatedly, at the same time and in any order."""

    def __init__(self, database: Database, provider: Provider | None, metrics: CreditMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._secrets = provider.secrets if provider else ()
        self._live = bool(provider and provider.live)

    async def receive(self, body: bytes, signature: str | None) -> None:
        """Does what a message asks for; one that concerns nothing of ours is only logged.

        Raises InvalidParameter for what the provider did not sign, or cannot have meant.
        """
        self._verify(body, signature)
        try:
            event = Event.model_validate_json(body)
            if event.livemode != self._live:
                _log(logging.ERROR, "foreign mode", event)
            elif event.type.startswith(_SESSION):
                await self._hear_of_session(event, StripeSession.model_validate(event.data.object))
            elif (reversal := parse_reversal(event)) is not None:
                await self._hear_of_reversal(event, reversal)
            else:
                _log(logging.INFO, "nothing to do", event)
        except ValidationError:
            raise InvalidParameter("The event cannot be understood.", reason="malformed") from None

    def _verify(self, body: bytes, signature: str | None) -> None:
        if not any(_signed(body, signature or "", secret) for secret in self._secrets):
            message = "The event is not signed by the payment provider, or too old."
            raise InvalidParameter(message, reason="invalid_signature", param="Stripe-Signature")

    async def _hear_of_session(self, event: Event, session: StripeSession) -> None:
        kind, report = event.type.removeprefix(_SESSION), session.report(event)
        if kind in _PAID and session.payment_status == "paid":
            outcome = await self._database.run(purchases.pay, report)
            if outcome == "credited" and (bought := await self._database.run(purchases.find, session.id)):
                self._metrics.granted("purchase", bought.credits)
        elif kind in _PAID:
            outcome = await self._database.run(purchases.set_state, report, "processing")
        elif kind in _ENDS:
            outcome = await self._database.run(purchases.set_state, report, _ENDS[kind])
        else:
            outcome = "known"
        level = logging.ERROR if outcome == "mismatch" else logging.INFO
        _log(level, outcome, event, session=session.id, purchase=session.client_reference_id)

    async def _hear_of_reversal(self, event: Event, told: StripeReversal) -> None:
        reversal = told.reversal(event)
        if not reversal.payment:
            _log(logging.INFO, "foreign", event, reversal=reversal.id)
        elif told.currency not in (None, CURRENCY):
            _log(logging.ERROR, "mismatch", event, reversal=reversal.id)
        else:
            change = await self._database.run(refunds.record, reversal, event.id)
            credits, account = (change.credits, change.account) if change else (None, None)
            _log(logging.INFO, "noted", event, reversal=reversal.id, account=account, credits=credits)


def _signed(body: bytes, signature: str, secret: str) -> bool:
    try:
        # Only text of ASCII can be compared in constant time.
        return signature.isascii() and WebhookSignature.verify_header(body, signature, secret, _TOLERANCE)
    except (SignatureVerificationError, UnicodeDecodeError):
        return False


def _log(level: int, outcome: str, event: Event, **told: object) -> None:
    fields = {"event": event.id, "type": event.type, "outcome": outcome, **told}
    log.log(level, "payment event", extra={"fields": fields})


@dataclass(frozen=True)
class Payments:
    """The way to a checkout, what hears of payments, and the simulation where checkout is simulated."""

    checkout: Checkout
    payments: PaymentEvents
    simulation: SimulatedCheckout | None


def open_payments(
    settings: Settings, database: Database, repeats: IdempotencyService, metrics: CreditMetrics
) -> Payments:
    """Sales through Stripe where there is a key, simulated ones on this machine only, or none."""
    root = settings.base_url.removesuffix("/api/v1")
    provider = _provider(settings, root)
    simulation = provider if isinstance(provider, SimulatedCheckout) else None
    if simulation:
        log.info("checkout is simulated: without Stripe keys, whoever uses this machine gets credits for nothing")
    elif provider is None:
        log.warning("credits cannot be bought: no Stripe keys are set, and the base URL is not of this machine")
    return Payments(Checkout(database, provider, root, repeats), PaymentEvents(database, provider, metrics), simulation)


def _provider(settings: Settings, root: str) -> Provider | None:
    key, secret = settings.stripe_secret_key, settings.stripe_webhook_secret
    if key is not None and secret is not None:
        secrets = tuple(part.strip() for part in secret.get_secret_value().split(",") if part.strip())
        return StripeCheckout(key.get_secret_value(), secrets, settings.stripe_api_base)
    return SimulatedCheckout(root) if is_loopback(_host(root)) else None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
