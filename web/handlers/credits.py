"""POST /credits/purchase, and the webhook by which credits come in."""

from __future__ import annotations

from config.tariff import CURRENCY
from web.bodies import JsonHandler
from web.errors import InvalidParameter
from web.fields import language, pack
from web.handler import UncountedHandler
from web.services.periods import timestamp

_MAX_EVENT = 256 << 10  # bytes


class Purchase(JsonHandler):
    """Opens a checkout for a pack."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    async def post(self) -> None:
        body = self.body()
        wanted, spoken = pack(body.get("pack")), language(body.get("language"))
        opened = await self.services.sales.checkout.purchase(self.client(), wanted, spoken)
        self.reply(
            {
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
        )


class StripeWebhook(JsonHandler, UncountedHandler):
    """Takes what Stripe tells. Its signature is the key; who shows wrong ones is counted."""

    max_body = _MAX_EVENT

    async def post(self) -> None:
        try:
            await self.services.sales.payments.receive(self.raw(), self.request.headers.get("Stripe-Signature"))
        except InvalidParameter:
            await self._count_failure()
            raise
        self.reply({"received": True})
