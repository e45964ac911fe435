"""POST /credits/purchase, the webhook that grants the credits, and the pages of the simulated checkout."""

import time
from typing import Any

from storage.tables import purchases
from web.api.errors import InvalidParameter, NotFound
from web.api.field_types import RequestModel
from web.api.fields import IdempotencyHeader, PurchaseFields, StripeHeader
from web.api.headers import NO_STORE
from web.api.operations import Operation, json_response
from web.api.schemas.accounts import EventReceived
from web.http.handler import BaseHandler
from web.locale.languages import Language, gettext_noop
from web.services.accounts.key_modes import check_live
from web.services.payments.checkout import (
    DEFAULT_LANGUAGE,
    OpenedCheckout,
    SimulatedCheckout,
    format_amount,
    return_urls,
)
from web.site.pages import PageHandler

_NOTICES = {
    "open": "",
    "declined": gettext_noop("The payment was declined, as you asked. You can try again."),
    "paid": gettext_noop("This purchase is paid."),
    "expired": gettext_noop("This page has expired."),
}


class Purchase(BaseHandler):
    """Opens a checkout for a pack of credits."""

    fixed_headers = NO_STORE

    @Operation(
        id="creditsPurchase",
        tag="Credits",
        json=PurchaseFields,
        headers=IdempotencyHeader,
        responses=(json_response(OpenedCheckout),),
    )
    async def post(self) -> None:
        """Open a checkout for a pack of credits

        Open `checkout_url` in a browser. The credits are added when the payment provider confirms the payment.
        """
        fields = self.input.json_fields(PurchaseFields)
        check_live(self.client())
        idempotency = self.input.idempotent_request(self.client().id)
        language = fields.language or DEFAULT_LANGUAGE
        checkout = self.services.payments.checkout
        response = await checkout.purchase_once(self.client(), fields.pack, language, idempotency)
        self.respond(self.unwrap_replay(response).data)


class StripeWebhook(BaseHandler):
    """Receives Stripe's events. Their signature authenticates them; invalid ones are counted by address."""

    access = "open"
    max_body = 256 << 10

    @Operation(
        id="stripeEventsReceive",
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
        self.respond(EventReceived())


class CheckoutPage(PageHandler):
    """Shows a purchase with buttons to pay, decline or cancel."""

    async def get(self, session: str) -> None:
        purchase = await _purchase(self, session)
        state = _state(purchase)
        declined = state == "open" and self.get_query_argument("declined", None) is not None
        notice = _NOTICES["declined" if declined else state]
        self.write_page("checkout.html", error=None, **_values(purchase, self.language, notice))


class CheckoutAction(PageHandler):
    """Pays a purchase with the code that the server has logged at its start; declines or cancels it without."""

    async def post(self, session: str, action: str) -> None:
        purchase = await _purchase(self, session)
        simulation = _simulation(self)
        success_url, cancel_url = return_urls(simulation.root, purchase.purchase_id)
        if action == "cancel":
            return self.redirect(cancel_url, status=303)
        if action == "decline" or _state(purchase) != "open":
            return self.redirect(f"/checkout/{session}?declined=1", status=303)
        if not simulation.is_code(self.input.web_form().get("code", "").strip()):
            message = gettext_noop("This is not the code in the log of the server.")
            error = InvalidParameter(message, reason="unknown", param="code")
            return self.write_error_page(error, "checkout.html", **_values(purchase, self.language))
        await self.services.payments.events.receive(*simulation.payment_event(purchase))
        return self.redirect(success_url, status=303)


def _simulation(handler: PageHandler) -> SimulatedCheckout:
    """The simulated checkout. Raises NotFound if there is none."""
    simulation = handler.services.payments.simulation
    if simulation is None:
        raise _no_such_page()
    return simulation


async def _purchase(handler: PageHandler, session: str) -> purchases.Purchase:
    if _simulation(handler).is_session(session):
        purchase = await handler.services.database.run(purchases.find, session)
        if purchase is not None:
            return purchase
    raise _no_such_page()


def _values(purchase: purchases.Purchase, language: Language, notice: str = "") -> dict[str, Any]:
    """The values of the payment page."""
    return {
        "session": purchase.session,
        "pack": purchase.pack,
        "credits": language.number(purchase.credits),
        "price": format_amount(purchase, language),
        "notice": notice,
        "disabled": _state(purchase) != "open",
    }


def _state(purchase: purchases.Purchase) -> str:
    if purchase.state == "paid":
        return "paid"
    expired = purchase.expires_at is None or purchase.expires_at <= time.time()
    return "expired" if expired else "open"


def _no_such_page() -> NotFound:
    return NotFound("No such page.")
