"""Payments: what the provider says of checkouts and refunds, once it is certain that it says so."""

from __future__ import annotations

import logging

from pydantic import ValidationError
from stripe import SignatureVerificationError, WebhookSignature

from config.tariff import CURRENCY
from storage import purchases, reversals
from storage.database import Database
from storage.purchases import State
from web.errors import InvalidParameter
from web.metrics.money import MoneyMetrics
from web.services.checkout import Provider
from web.services.events import CheckoutSession, Event, Returned, returned

log = logging.getLogger("convertd.payments")

_TOLERANCE = 300  # seconds that a message may be old
_SESSION = "checkout.session."
_PAID = ("completed", "async_payment_succeeded")
_ENDS: dict[str, State] = {"async_payment_failed": "failed", "expired": "expired"}


class Payments:
    """Hears the provider. Messages may come repeatedly, at the same time and in any order."""

    def __init__(self, database: Database, provider: Provider | None, metrics: MoneyMetrics) -> None:
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
                await self._hear_of_session(event, CheckoutSession.model_validate(event.data.object))
            elif (reversal := returned(event)) is not None:
                await self._hear_of_reversal(event, reversal)
            else:
                _log(logging.INFO, "nothing to do", event)
        except ValidationError:
            raise InvalidParameter("The event cannot be understood.", reason="malformed") from None

    def _verify(self, body: bytes, signature: str | None) -> None:
        if not any(_signed(body, signature or "", secret) for secret in self._secrets):
            message = "The event is not signed by the payment provider, or too old."
            raise InvalidParameter(message, reason="invalid_signature", param="Stripe-Signature")

    async def _hear_of_session(self, event: Event, session: CheckoutSession) -> None:
        kind, report = event.type.removeprefix(_SESSION), session.report(event)
        if kind in _PAID and session.payment_status == "paid":
            outcome = await self._database.run(purchases.pay, report)
            if outcome == "credited" and (bought := await self._database.run(purchases.find, session.id)):
                self._metrics.granted("purchase", bought.credits)
        elif kind in _PAID:
            outcome = await self._database.run(purchases.progress, report, "processing")
        elif kind in _ENDS:
            outcome = await self._database.run(purchases.progress, report, _ENDS[kind])
        else:
            outcome = "known"
        level = logging.ERROR if outcome == "mismatch" else logging.INFO
        _log(level, outcome, event, session=session.id, purchase=session.client_reference_id)

    async def _hear_of_reversal(self, event: Event, told: Returned) -> None:
        reversal = told.reversal(event)
        if not reversal.payment:
            _log(logging.INFO, "foreign", event, reversal=reversal.id)
        elif told.currency not in (None, CURRENCY):
            _log(logging.ERROR, "mismatch", event, reversal=reversal.id)
        else:
            change = await self._database.run(reversals.note, reversal, event.id)
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
