"""Checkout: the purchase of a credit pack on the payment page of a provider, real or simulated."""

import json
import logging
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Protocol

from pydantic import Field

from config.pricing import CURRENCY
from config.settings import Settings
from engine.lazy import lazy_imports
from storage.database import Database
from storage.field_types import Timestamp
from storage.ids import is_id, new_id, random_text
from storage.tables import purchases
from storage.tables.idempotency import Claim
from storage.tables.purchases import Purchase
from web.api.errors import CheckoutNotConfigured, CheckoutUnavailable, InvalidParameter
from web.api.values import Flat, Inline, to_json
from web.locale.languages import Language, gettext_noop
from web.metrics.service import CreditMetrics
from web.services.accounts.accounts import Account
from web.services.conversions.idempotency import IdempotencyService, IdempotentRequest, Replayed, ResponseData

with lazy_imports():
    import stripe

log = logging.getLogger("convertd.checkout")

_STRIPE_LOCALES = (
    "bg",
    "cs",
    "da",
    "de",
    "el",
    "en",
    "en-GB",
    "es",
    "es-419",
    "et",
    "fi",
    "fil",
    "fr",
    "fr-CA",
    "hi-IN",
    "hr",
    "hu",
    "id",
    "it",
    "ja",
    "ko",
    "lt",
    "lv",
    "ms",
    "mt",
    "nb",
    "nl",
    "pl",
    "pt",
    "pt-BR",
    "ro",
    "ru",
    "sk",
    "sl",
    "sv",
    "th",
    "tr",
    "vi",
    "zh",
    "zh-HK",
    "zh-TW",
)
DEFAULT_LANGUAGE = "en"
SESSION_LIFETIME = 23 * 3600  # seconds; Stripe allows 24 hours by its own clock
_SIMULATED_SESSION = "cs_simulated"


@dataclass(frozen=True)
class CheckoutSession:
    """An open payment page."""

    checkout_url: Annotated[
        str,
        Field(
            description="The page to open in a browser.", examples=["https://checkout.stripe.com/c/pay/cs_live_a1b2c3"]
        ),
    ]
    session_id: Annotated[
        str, Field(description="The payment provider's id of the checkout.", examples=["cs_live_a1b2c3"])
    ]
    expires_at: Timestamp


class Provider(Protocol):
    """A payment provider. It signs its webhook events with one of `secrets`; `live` means real money."""

    secrets: tuple[str, ...]
    live: bool

    async def open(self, purchase: Purchase, email: str, language: str) -> CheckoutSession:
        """Opens a payment page, the same one for the same purchase. Raises CheckoutUnavailable."""

    async def close(self) -> None:
        """Closes connections."""


@dataclass(frozen=True)
class OpenedCheckout(Flat):
    """An open checkout."""

    session: Inline[CheckoutSession]
    purchase: Inline[Purchase]
    language: Annotated[str, Field(description="The language of the checkout page.", examples=["en"])]
    status: Literal["open"] = "open"


class Checkout:
    """Opens checkouts."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        provider: Provider | None,
        idempotency: IdempotencyService,
        metrics: CreditMetrics,
    ) -> None:
        self._packs = settings.packs
        self._database = database
        self._metrics = metrics
        self._idempotency = idempotency
        self._provider = provider

    async def purchase(self, account: Account, name: str, language: str) -> OpenedCheckout:
        """Opens a checkout for a pack. Raises InvalidParameter, CheckoutUnavailable and CheckoutNotConfigured."""
        pack = self._packs.get(name)
        if pack is None and self._packs:
            message, details = f"pack must be one of {', '.join(self._packs)}.", {"available": list(self._packs)}
            raise InvalidParameter(message, reason="unknown", param="pack", details=details)
        if pack is None or self._provider is None:
            raise CheckoutNotConfigured
        purchase = await self._database.run(purchases.begin, account.id, name, pack.credits, pack.amount, CURRENCY)
        purchase_id = purchase.purchase_id
        locale = stripe_locale(language)
        try:
            session = await self._provider.open(purchase, account.email, locale)
        except CheckoutUnavailable:
            self._metrics.payments.labels("unavailable").inc()
            await self._database.run(purchases.abandon, purchase_id)
            raise
        await self._database.run(purchases.set_session, purchase_id, session.session_id, session.expires_at)
        self._metrics.payments.labels("opened").inc()
        fields = {"purchase": purchase_id, "session": session.session_id, "pack": name}
        log.info("checkout opened", extra={"fields": fields})
        return OpenedCheckout(session, purchase, locale)

    async def purchase_once(
        self, account: Account, pack: str, language: str, idempotency: IdempotentRequest | None
    ) -> ResponseData | Replayed:
        """As `purchase`, at most once per idempotency key; returns the response."""

        async def work(_claim: Claim | None) -> ResponseData:
            return ResponseData(to_json(await self.purchase(account, pack, language)))

        return await self._idempotency.run_once(idempotency, {"pack": pack, "language": language}, work)

    async def close(self) -> None:
        """Closes the provider's connections."""
        if self._provider is not None:
            await self._provider.close()


def return_urls(root: str, purchase: str) -> tuple[str, str]:
    """The URLs of the dashboard below `root` that buyers return to after payment and after cancelling."""
    paid = f"{root}/dashboard?purchase={purchase}"
    return paid, f"{paid}&cancelled=1"


def format_amount(purchase: Purchase, language: Language) -> str:
    """The price with its currency, for example "5.00 EUR"."""
    return _money(purchase.amount, purchase.currency, language)


@dataclass(frozen=True)
class FormattedTax:
    """The tax in a price, for receipts: the net price and the tax with their currency, and the rate."""

    net: str
    amount: str
    rate: str


def format_tax(purchase: Purchase, language: Language) -> FormattedTax | None:
    """The tax in the price; None if the payment provider has computed none."""
    if purchase.tax is None:
        return None
    net = purchase.amount - purchase.tax
    share = language.number(round(100 * purchase.tax / net, 1), "g") if net > 0 else ""
    rate = language.translate("{number}%").format(number=share) if share else ""
    money = partial(_money, currency=purchase.currency, language=language)
    return FormattedTax(money(net), money(purchase.tax), rate)


def _money(amount: int, currency: str, language: Language) -> str:
    return f"{language.number(amount / 100, '.2f')} {currency.upper()}"


def payment_status(purchase: Purchase) -> str:
    """The status of a purchase with a payment, in English words."""
    if purchase.refunded:
        is_whole = purchase.refunded >= purchase.credits
        return gettext_noop("refunded") if is_whole else gettext_noop("partly refunded")
    pending, failed, paid = (gettext_noop("payment pending"), gettext_noop("payment failed"), gettext_noop("paid"))
    return {"processing": pending, "failed": failed, "paid": paid}.get(purchase.state, purchase.state)


def stripe_locale(tag: str) -> str:
    """Stripe's name of a language tag, compared without case; English if Stripe does not support the language."""
    return next((known for known in _STRIPE_LOCALES if known.lower() == tag.lower()), DEFAULT_LANGUAGE)


class SimulatedCheckout:
    """A provider whose payment pages are served below `root`. Its signing secret never leaves this process.

    To pay, a client needs the `code`, which is new at each start of the server: any client that reaches the server can
    be a stranger, because a proxy need not identify its client in a header.
    """

    live = False

    def __init__(self, root: str, code: str) -> None:
        self.secrets: tuple[str, ...] = (secrets.token_hex(32),)
        self.root = root
        self.code = code

    async def open(self, purchase: Purchase, email: str, language: str) -> CheckoutSession:
        session = new_id(_SIMULATED_SESSION)
        return CheckoutSession(f"{self.root}/checkout/{session}", session, int(time.time()) + SESSION_LIFETIME)

    async def close(self) -> None:
        """Does nothing: there are no connections."""

    def is_session(self, text: str) -> bool:
        """Whether the text is a well-formed id of a simulated session."""
        return is_id(_SIMULATED_SESSION, text)

    def is_code(self, text: str) -> bool:
        """Whether the text is the code. Takes the same time for all wrong texts of its length."""
        return secrets.compare_digest(text.encode(), self.code.encode())

    def payment_event(self, purchase: Purchase) -> tuple[bytes, str]:
        """The webhook event of a paid purchase, and its signature."""
        session = {
            "id": purchase.session,
            "object": "checkout.session",
            "client_reference_id": purchase.purchase_id,
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
        return body.encode(), stripe.WebhookSignature.generate_signature_header(body, self.secrets[0])
