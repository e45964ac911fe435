"""POST /credits/purchase, and the webhook by which credits come in."""

from __future__ import annotations

from web.bodies import BodyHandler, JsonHandler
from web.errors import InvalidParameter
from web.fields import IDEMPOTENCY_KEY, LANGUAGE, PACK, STRIPE_SIGNATURE
from web.handler import UncountedHandler
from web.headers import PRIVATE
from web.operations import Operation, described
from web.repeating import RepeatableHandler
from web.services.checkout import DEFAULT_LANGUAGE
from web.shapes import credits as shapes

_MAX_EVENT = 256 << 10  # bytes


class Purchase(RepeatableHandler, JsonHandler):
    """Opens a checkout for a pack."""

    always = PRIVATE

    @Operation(
        id="purchaseCredits",
        tag="Credits",
        json=(PACK, LANGUAGE),
        headers=(IDEMPOTENCY_KEY,),
        answers=(described(shapes.Purchase),),
    )
    async def post(self) -> None:
        """Open a checkout for a pack of credits

        Open `checkout_url` in a browser. The credits come in once the payment provider has told of the payment.
        """
        values, checkout = self.given(), self.services.sales.checkout
        wanted = (values[PACK], values[LANGUAGE] or DEFAULT_LANGUAGE, self.repeatable(values))
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
        answers=(described(shapes.Received),),
        codes=("rate_limit_exceeded",),
    )
    async def post(self) -> None:
        """Hear of a payment

        For Stripe alone, which signs its events.
        """
        try:
            await self.services.sales.payments.receive(self.raw(), self.given()[STRIPE_SIGNATURE])
        except InvalidParameter:
            await self._count_failure()
            raise
        self.reply({"received": True})
