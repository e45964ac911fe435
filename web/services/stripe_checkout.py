"""Checkout at Stripe."""

from __future__ import annotations

import asyncio
import logging
import time

import stripe

from config.tariff import CURRENCY
from web.errors import CheckoutUnavailable
from web.services.checkout import Order, Session

log = logging.getLogger("convertd.checkout")

_PATIENCE = 8.0  # seconds for each step of a try
_RETRIES = 2
_WHOLE_PATIENCE = 25.0  # seconds for all tries together
_LIFETIME = 23 * 3600  # seconds that a page lives: Stripe allows 24 hours by its own clock


class StripeCheckout:
    """Asks Stripe for pages. A try that is made again carries the order's id, so it opens no second page."""

    def __init__(self, key: str, secrets: tuple[str, ...], api_base: str, *, patience: float = _WHOLE_PATIENCE) -> None:
        self.secrets = secrets
        self._patience = patience
        self.live = key.startswith(("sk_live_", "rk_live_"))
        self._http = stripe.HTTPXClient(timeout=_PATIENCE)
        self._client = stripe.StripeClient(
            key, base_addresses={"api": api_base}, http_client=self._http, max_network_retries=_RETRIES
        )

    async def open(self, order: Order) -> Session:
        try:
            async with asyncio.timeout(self._patience):
                made = await self._client.v1.checkout.sessions.create_async(
                    _parameters(order), {"idempotency_key": order.id}
                )
            if made.url is None:
                raise AttributeError("url")
            return Session(made.id, made.url, made.expires_at)
        except (stripe.StripeError, TimeoutError, AttributeError) as error:
            fields = {"purchase": order.id, "error": type(error).__name__, "code": getattr(error, "code", None)}
            log.error("Stripe opened no checkout: %s", error, extra={"fields": fields})
            raise CheckoutUnavailable from None

    async def close(self) -> None:
        await self._http.close_async()  # type: ignore[no-untyped-call]


def _parameters(order: Order) -> stripe.params.checkout.SessionCreateParams:
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
