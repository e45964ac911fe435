"""Checkout: a pack is noted, a provider opens a page where it can be paid, and the client is told where."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Protocol

from stripe import WebhookSignature

from config.pricing import CURRENCY, Pack
from storage import purchases
from storage.database import Database
from storage.idempotency import Claim
from storage.ids import is_id, new_id, random_text
from storage.purchases import Purchase
from web.api.errors import CheckoutNotConfigured, CheckoutUnavailable
from web.api.schemas.accounts import OpenedCheckout
from web.api.times import timestamp
from web.services.accounts import Account
from web.services.idempotency import Answer, IdempotencyService, IdempotentRequest, Replayed

log = logging.getLogger("convertd.checkout")

_LANGUAGES = (  # of Stripe's page
    *("bg", "cs", "da", "de", "el", "en", "en-GB", "es", "es-419", "et", "fi", "fil", "fr", "fr-CA"),
    *("hi-IN", "hr", "hu", "id", "it", "ja", "ko", "lt", "lv", "ms", "mt", "nb", "nl", "pl"),
    *("pt", "pt-BR", "ro", "ru", "sk", "sl", "sv", "th", "tr", "vi", "zh", "zh-HK", "zh-TW"),
)
DEFAULT_LANGUAGE = "en"


@dataclass(frozen=True)
class CheckoutOrder:
    """What a provider is to open a page for. The id is the same whenever it is asked for the same."""

    id: str
    pack: Pack
    email: str
    language: str
    success_url: str
    cancel_url: str


@dataclass(frozen=True)
class CheckoutSession:
    """A page that was opened, until a time (Unix time in whole seconds)."""

    id: str
    url: str
    expires_at: int


class Provider(Protocol):
    """Who takes the money, and tells so by messages signed with one of the secrets. `live` is money that is real."""

    @property
    def secrets(self) -> tuple[str, ...]: ...

    @property
    def live(self) -> bool: ...

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        """Opens a page, the same one for the same order. Raises CheckoutUnavailable."""

    async def close(self) -> None:
        """Gives back what it holds."""


@dataclass(frozen=True)
class OpenCheckout:
    """A purchase that waits to be paid at the session's page."""

    id: str
    pack: Pack
    language: str
    session: CheckoutSession


class Checkout:
    """Opens checkouts, whose buyers are sent back to the dashboard below `root`."""

    def __init__(self, database: Database, provider: Provider | None, root: str, repeats: IdempotencyService) -> None:
        self._database = database
        self._repeats = repeats
        self._provider = provider
        self._root = root

    async def purchase(self, account: Account, pack: Pack, language: str) -> OpenCheckout:
        """Raises CheckoutUnavailable and CheckoutNotConfigured; then nothing is kept."""
        if self._provider is None:
            raise CheckoutNotConfigured
        begun = (account.id, pack.name, pack.credits, pack.price, CURRENCY)
        purchase = await self._database.run(purchases.begin, *begun)
        spoken = stripe_locale(language)
        order = CheckoutOrder(purchase, pack, account.email, spoken, *return_urls(self._root, purchase))
        try:
            session = await self._provider.open(order)
        except CheckoutUnavailable:
            await self._database.run(purchases.abandon, purchase)
            raise
        await self._database.run(purchases.set_session, purchase, session.id, session.expires_at)
        log.info("checkout opened", extra={"fields": {"purchase": purchase, "session": session.id, "pack": pack.name}})
        return OpenCheckout(purchase, pack, spoken, session)

    async def purchase_once(
        self, account: Account, pack: Pack, language: str, idempotency: IdempotentRequest | None
    ) -> Answer | Replayed:
        """The same as an answer that is given again when the request comes again."""

        async def work(_claim: Claim | None) -> Answer:
            return Answer(_described(await self.purchase(account, pack, language)))

        return await self._repeats.once(idempotency, {"pack": pack.name, "language": language}, work)

    async def close(self) -> None:
        """Takes leave of the provider."""
        if self._provider is not None:
            await self._provider.close()


def _described(opened: OpenCheckout) -> OpenedCheckout:
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
    """Where buyers are sent who have paid, and who have not."""
    paid = f"{root}/dashboard?purchase={purchase}"
    return paid, f"{paid}&cancelled=1"


def stripe_locale(tag: str) -> str:
    """The language of the page, as Stripe writes it: the one that is asked for, or else English."""
    return next((known for known in _LANGUAGES if known.lower() == tag.lower()), DEFAULT_LANGUAGE)


_SESSION_LIFETIME = 23 * 3600  # seconds that a page lives
_SESSION_PREFIX = "cs_simulated"


class SimulatedCheckout:
    """Opens pages below `root`. What is signed with its secret was paid on one of them, since it tells nobody."""

    live = False

    def __init__(self, root: str) -> None:
        self.secrets = (secrets.token_hex(32),)
        self.root = root

    async def open(self, order: CheckoutOrder) -> CheckoutSession:
        session = new_id(_SESSION_PREFIX)
        return CheckoutSession(session, f"{self.root}/checkout/{session}", int(time.time()) + _SESSION_LIFETIME)

    async def close(self) -> None:
        """Holds nothing."""

    def is_session(self, text: str) -> bool:
        """Whether this is the name of one of its pages."""
        return is_id(_SESSION_PREFIX, text)

    def payment(self, purchase: Purchase) -> tuple[bytes, str]:
        """The message that a purchase is paid, and its signature."""
        told = {
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
            "data": {"object": told},
        }
        body = json.dumps(event)
        return body.encode(), WebhookSignature.generate_signature_header(body, self.secrets[0])
