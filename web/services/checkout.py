"""Checkout: the purchase of a credit pack on the payment page of a provider, real or simulated."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Protocol

from stripe import WebhookSignature

from config.pricing import CURRENCY, Pack
from storage.database import Database
from storage.ids import is_id, new_id, random_text
from storage.tables import purchases
from storage.tables.idempotency import Claim
from storage.tables.purchases import Purchase
from web.api.errors import CheckoutNotConfigured, CheckoutUnavailable
from web.api.schemas.accounts import OpenedCheckout
from web.api.times import timestamp
from web.services.accounts import Account
from web.services.idempotency import IdempotencyService, IdempotentRequest, Replayed, ResponseData

log = logging.getLogger("convertd.checkout")

_LOCALES = (  # of Stripe's payment page
    *("bg", "cs", "da", "de", "el", "en", "en-GB", "es", "es-419", "et", "fi", "fil", "fr", "fr-CA"),
    *("hi-IN", "hr", "hu", "id", "it", "ja", "ko", "lt", "lv", "ms", "mt", "nb", "nl", "pl"),
    *("pt", "pt-BR", "ro", "ru", "sk", "sl", "sv", "th", "tr", "vi", "zh", "zh-HK", "zh-TW"),
)
DEFAULT_LANGUAGE = "en"
_SESSION_LIFETIME = 23 * 3600  # seconds
_SIMULATED_SESSION = "cs_simulated"


@dataclass(frozen=True)
class CheckoutOrder:
    """The order that a provider opens a payment page for. Its id makes retries idempotent."""

    id: str
    pack: Pack
    email: str
    language: str
    success_url: str
    cancel_url: str


@dataclass(frozen=True)
class CheckoutSession:
    """An open payment page. `expires_at` is Unix time in seconds."""

    id: str
    url: str
    expires_at: int


class Provider(Protocol):
    """A payment provider. It signs its webhook events with one of `secrets`; `live` means real money."""

    @property
    def secrets(self) -> tuple[str, ...]: ...

    @property
    def live(self) -> bool: ...

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        """Opens a payment page, the same one for the same order. Raises CheckoutUnavailable."""

    async def close(self) -> None:
        """Closes connections."""


@dataclass(frozen=True)
class OpenCheckout:
    """A purchase that can be paid on the session's page."""

    id: str
    pack: Pack
    language: str
    session: CheckoutSession


class Checkout:
    """Opens checkouts. After payment, buyers return to the dashboard below the URL `root`."""

    def __init__(
        self, database: Database, provider: Provider | None, root: str, idempotency: IdempotencyService
    ) -> None:
        self._database = database
        self._idempotency = idempotency
        self._provider = provider
        self._root = root

    async def purchase(self, account: Account, pack: Pack, language: str) -> OpenCheckout:
        """Opens a checkout for a pack. Raises CheckoutUnavailable and CheckoutNotConfigured."""
        if self._provider is None:
            raise CheckoutNotConfigured
        purchase = await self._database.run(purchases.begin, account.id, pack.name, pack.credits, pack.price, CURRENCY)
        locale = stripe_locale(language)
        order = CheckoutOrder(purchase, pack, account.email, locale, *return_urls(self._root, purchase))
        try:
            session = await self._provider.open(order)
        except CheckoutUnavailable:
            await self._database.run(purchases.abandon, purchase)
            raise
        await self._database.run(purchases.set_session, purchase, session.id, session.expires_at)
        log.info("checkout opened", extra={"fields": {"purchase": purchase, "session": session.id, "pack": pack.name}})
        return OpenCheckout(purchase, pack, locale, session)

    async def purchase_once(
        self, account: Account, pack: Pack, language: str, idempotency: IdempotentRequest | None
    ) -> ResponseData | Replayed:
        """As `purchase`, at most once per idempotency key; returns the response."""

        async def work(_claim: Claim | None) -> ResponseData:
            return ResponseData(_response(await self.purchase(account, pack, language)))

        return await self._idempotency.run_once(idempotency, {"pack": pack.name, "language": language}, work)

    async def find(self, session: str) -> Purchase | None:
        """Returns the purchase of a checkout session, if there is one."""
        return await self._database.read(purchases.find, session)

    async def find_of_account(self, account_id: str, purchase_id: str) -> Purchase | None:
        """Returns a purchase of the account, if there is one with this id."""
        return await self._database.read(purchases.find_of_account, account_id, purchase_id)

    async def list_payments(self, account_id: str) -> tuple[Purchase, ...]:
        """Returns the account's latest purchases with a payment, newest first."""
        return await self._database.read(purchases.list_payments, account_id)

    async def close(self) -> None:
        """Closes the provider's connections."""
        if self._provider is not None:
            await self._provider.close()


def _response(opened: OpenCheckout) -> OpenedCheckout:
    return {
        "checkout_url": opened.session.url,
        "session_id": opened.session.id,
        "purchase_id": opened.id,
        "pack": opened.pack.name,
        "credits": opened.pack.credits,
        "amount": opened.pack.price,
        "currency": CURRENCY,
        "language": opened.language,
        "status": "open",
        "expires_at": timestamp(opened.session.expires_at),
    }


def return_urls(root: str, purchase: str) -> tuple[str, str]:
    """The URLs that buyers return to after payment and after cancelling."""
    paid = f"{root}/dashboard?purchase={purchase}"
    return paid, f"{paid}&cancelled=1"


def format_amount(purchase: Purchase) -> str:
    """The price with its currency, for example "5.00 EUR"."""
    return f"{purchase.amount / 100:.2f} {purchase.currency.upper()}"


def payment_status(purchase: Purchase) -> str:
    """The status of a purchase with a payment, in words."""
    if purchase.refunded:
        return "refunded" if purchase.refunded >= purchase.credits else "partly refunded"
    return {"processing": "payment pending", "failed": "payment failed"}.get(purchase.state, purchase.state)


def stripe_locale(tag: str) -> str:
    """Stripe's name of a language tag, compared without case; English if Stripe does not support the language."""
    return next((known for known in _LOCALES if known.lower() == tag.lower()), DEFAULT_LANGUAGE)


class SimulatedCheckout:
    """A provider whose payment pages are served below `root`. Its signing secret never leaves this process."""

    live = False

    def __init__(self, root: str) -> None:
        self.secrets = (secrets.token_hex(32),)
        self.root = root

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        session = new_id(_SIMULATED_SESSION)
        return CheckoutSession(session, f"{self.root}/checkout/{session}", int(time.time()) + _SESSION_LIFETIME)

    async def close(self) -> None:
        """Does nothing: there are no connections."""

    def is_session(self, text: str) -> bool:
        """Whether the text is a well-formed id of a simulated session."""
        return is_id(_SIMULATED_SESSION, text)

    def payment_event(self, purchase: Purchase) -> tuple[bytes, str]:
        """The webhook event of a paid purchase, and its signature."""
        session = {
            "id": purchase.session,
            "object": "checkout.session",
            "client_reference_id": purchase.id,
            "payment_status": "paid",
            "payment_intent": f"pi_simulated_{random_text(22)}",
            "amount_total": purchase.amount,
            "currency": purchase.currency,
        }
        event = {
            "id": f"evt_simulated_{random_text(22)}",
            "object": "event",
            "type": "checkout.session.completed",
            "created": int(time.time()),
            "livemode": self.live,
            "data": {"object": session},
        }
        body = json.dumps(event)
        return body.encode(), WebhookSignature.generate_signature_header(body, self.secrets[0])
