"""The pages of the simulated checkout, which only this machine can reach."""

from __future__ import annotations

import time

from tornado.httputil import split_host_and_port

from config.settings import is_loopback
from storage.tables.purchases import Purchase
from web.api.errors import NotFound
from web.handlers.pages import PageHandler
from web.services.checkout import SimulatedCheckout, format_amount, return_urls

_PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
_NOTICES = {
    "open": "",
    "declined": "The payment was declined, as you asked. You can try again.",
    "paid": "This purchase is paid.",
    "expired": "This page has expired.",
}


class CheckoutPage(PageHandler):
    """Shows a purchase with buttons to pay, decline or cancel."""

    async def get(self, session: str) -> None:
        purchase = await _purchase(self, session)
        state = _state(purchase)
        declined = state == "open" and self.get_query_argument("declined", None) is not None
        self.write_page(
            "checkout.html",
            session=session,
            pack=purchase.pack,
            credits=str(purchase.credits),
            price=format_amount(purchase),
            notice=_NOTICES["declined" if declined else state],
            disabled=state != "open",
        )


class CheckoutAction(PageHandler):
    """Pays, declines or cancels a purchase."""

    async def post(self, session: str, action: str) -> None:
        purchase, simulation = await _purchase(self, session), _simulation(self)
        success_url, cancel_url = return_urls(simulation.root, purchase.id)
        if action == "cancel":
            return self.redirect_to(cancel_url)
        if action == "decline" or _state(purchase) != "open":
            return self.redirect_to(f"/checkout/{session}?declined=1")
        await self.services.payments.events.receive(*simulation.payment_event(purchase))
        return self.redirect_to(success_url)


def _simulation(handler: PageHandler) -> SimulatedCheckout:
    """The simulated checkout. Raises NotFound if there is none, or for a client on another machine."""
    simulation = handler.services.payments.simulation
    if simulation is None or not _is_local(handler):
        raise _no_such_page()
    return simulation


async def _purchase(handler: PageHandler, session: str) -> Purchase:
    if _simulation(handler).is_session(session):
        purchase = await handler.services.payments.checkout.find(session)
        if purchase is not None:
            return purchase
    raise _no_such_page()


def _is_local(handler: PageHandler) -> bool:
    """Whether client and server are this machine. A local proxy may forward requests of other machines."""
    request = handler.request
    host, _ = split_host_and_port(request.host)
    proxied = any(name in request.headers for name in _PROXY_HEADERS)
    return not proxied and is_loopback(request.remote_ip) and is_loopback(host)


def _state(purchase: Purchase) -> str:
    if purchase.state == "paid":
        return "paid"
    expired = purchase.expires_at is None or purchase.expires_at <= time.time()
    return "expired" if expired else "open"


def _no_such_page() -> NotFound:
    return NotFound("No such page.")
