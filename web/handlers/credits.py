"""POST /credits/purchase, and the webhook by which credits come in."""

from __future__ import annotations

from web.api.errors import InvalidParameter
from web.api.fields import IDEMPOTENCY_KEY, LANGUAGE, PACK, STRIPE_SIGNATURE
from web.api.headers import NO_STORE
from web.api.operations import Operation, described
from web.api.schemas import accounts as shapes
from web.handlers.conversions import RepeatableHandler
from web.http.bodies import BodyHandler, JsonHandler
from web.http.handler import UncountedHandler
from web.services.checkout import DEFAULT_LANGUAGE

_MAX_EVENT = 256 << 10  # bytes


class Purchase(RepeatableHandler, JsonHandler):
    """Opens a checkout for a pack."""

    always = NO_STORE

    @Operation(
        id="purchaseCredits",
        tag="Credits",
        json=(PACK, LANGUAGE),
        headers=(IDEMPOTENCY_KEY,),
        answers=(described(shapes.OpenedCheckout),),
    )
    async def post(self) -> None:
        """Open a checkout for a pack of credits

        Open `checkout_url` in a browser. The credits come in once the payment provider has told of the payment.
        """
        values, checkout = self.given(), self.services.payments.checkout
        wanted = (values[PACK], values[LANGUAGE] or DEFAULT_LANGUAGE, self.idempotent_request(values))
        answer = self.unwrapped(await checkout.purchase_once(self.client(), *wanted))
        self.reply(answer.data)


class StripeWebhook(BodyHandler, UncountedHandler):
    """Takes what Stripe tells. Its signature is the key; who shows wrong ones is counted."""

    max_body = _MAX_EVENT

    @Operation(
        id="receiveStripeEvent",
        tag="Credits",
        json=(),
        headers=(STRIPE_SIGNATURE,),
        answers=(described(shapes.EventReceived),),
        codes=("rate_limit_exceeded",),
    )
    async def post(self) -> None:
        """Hear of a payment

        For Stripe alone, which signs its events.
        """
        try:
            await self.services.payments.events.receive(self.raw(), self.given()[STRIPE_SIGNATURE])
        except InvalidParameter:
            await self._count_failure()
            raise
        self.reply({"received": True})
