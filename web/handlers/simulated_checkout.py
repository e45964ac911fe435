"""The pages of the simulated checkout. They are there for this machine alone."""

from __future__ import annotations

import time

from tornado.httputil import split_host_and_port

from storage.purchases import Purchase
from web.api.errors import NotFound
from web.handlers.pages import PageHandler
from web.services.checkout import SimulatedCheckout, return_urls
from web.services.client_address import is_loopback

_FORWARDING = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
_NOTICES = {
    "open": "",
    "declined": "The payment was declined, as you asked. You can try again.",
    "paid": "This has been paid.",
    "expired": "This page has expired.",
}


class _SimulatedHandler(PageHandler):
    """Found only where checkout is simulated, and by those who sit at this machine."""

    def simulation(self) -> SimulatedCheckout:
        found = self.services.payments.simulation
        if found is None or not self._is_local():
            raise _missing()
        return found

    async def purchase(self, session: str) -> Purchase:
        if self.simulation().is_session(session):
            found = await self.services.payments.checkout.find(session)
            if found is not None:
                return found
        raise _missing()

    def _is_local(self) -> bool:
        """Whether both ends are this machine. A proxy here may speak for somebody elsewhere."""
        host, _ = split_host_and_port(self.request.host)
        forwarded = any(name in self.request.headers for name in _FORWARDING)
        return not forwarded and is_loopback(self.request.remote_ip) and is_loopback(host)


class CheckoutPage(_SimulatedHandler):
    """Shows what is to be paid."""

    async def get(self, session: str) -> None:
        purchase = await self.purchase(session)
        state = _state(purchase)
        declined = state == "open" and self.get_query_argument("declined", None) is not None
        values = {
            "session": session,
            "pack": purchase.pack,
            "credits": str(purchase.credits),
            "price": f"{purchase.amount / 100:.2f} {purchase.currency.upper()}",
            "notice": _NOTICES["declined" if declined else state],
            "disabled": state != "open",
        }
        self.write_page("checkout.html", **values)


class CheckoutChoice(_SimulatedHandler):
    """Pays, is declined, or goes back."""

    async def post(self, session: str, choice: str) -> None:
        purchase = await self.purchase(session)
        simulation = self.simulation()
        paid, cancelled = return_urls(simulation.root, purchase.id)
        if choice == "cancel":
            return self._send_to(cancelled)
        if choice == "decline" or _state(purchase) != "open":
            return self._send_to(f"/checkout/{session}?declined=1")
        await self.services.payments.events.receive(*simulation.payment_event(purchase))
        return self._send_to(paid)

    def _send_to(self, place: str) -> None:
        self.set_status(303)
        self.set_header("Location", place)


def _state(purchase: Purchase) -> str:
    if purchase.state == "paid":
        return "paid"
    expired = purchase.expires_at is None or purchase.expires_at <= time.time()
    return "expired" if expired else "open"


def _missing() -> NotFound:
    return NotFound("No such page.")
