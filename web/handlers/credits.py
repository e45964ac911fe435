"""POST /credits/purchase, and the webhook that grants the credits."""

from __future__ import annotations

from web.api.errors import InvalidParameter
from web.api.fields import IdempotencyHeader, PurchaseFields, RequestModel, StripeHeader
from web.api.headers import NO_STORE
from web.api.operations import Operation, json_response
from web.api.schemas.accounts import EventReceived, OpenedCheckout
from web.http.handler import BaseHandler
from web.services.checkout import DEFAULT_LANGUAGE


class Purchase(BaseHandler):
    """Opens a checkout for a pack of credits."""

    fixed_headers = NO_STORE

    @Operation(
        id="purchaseCredits",
        tag="Credits",
        json=PurchaseFields,
        headers=IdempotencyHeader,
        responses=(json_response(OpenedCheckout),),
    )
    async def post(self) -> None:
        """Open a checkout for a pack of credits

        Open `checkout_url` in a browser. The credits are added when the payment provider confirms the payment.
        """
        fields, idempotency = self.input.json_fields(PurchaseFields), self.input.idempotent_request(self.client().id)
        language, checkout = fields.language or DEFAULT_LANGUAGE, self.services.payments.checkout
        response = await checkout.purchase_once(self.client(), fields.pack, language, idempotency)
        self.respond(self.unwrap_replay(response).data)


class StripeWebhook(BaseHandler):
    """Receives Stripe's events. Their signature authenticates them; invalid ones are counted by address."""

    access = "open"
    max_body = 256 << 10

    @Operation(
        id="receiveStripeEvent",
        tag="Credits",
        json=RequestModel,
        headers=StripeHeader,
        responses=(json_response(EventReceived),),
        codes=("rate_limit_exceeded",),
    )
    async def post(self) -> None:
        """Receive a payment event

        For Stripe only. Events must be signed.
        """
        try:
            signature = self.input.header_fields(StripeHeader).signature
            await self.services.payments.events.receive(self.input.content, signature)
        except InvalidParameter:
            await self.authorization.count_failed_login()
            raise
        self.respond({"received": True})
