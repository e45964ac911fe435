"""Checkout without a provider: a page of our own where nothing is paid, and messages as Stripe would sign them."""

from __future__ import annotations

import json
import secrets
import time

from stripe import WebhookSignature

from storage.ids import is_id, new_id, random_text
from storage.purchases import Purchase
from web.services.checkout import Order, Session

_LIFETIME = 23 * 3600  # seconds that a page lives
_SESSION = "cs_simulated"


class SimulatedCheckout:
    """Opens pages below `root`. What is signed with its secret was paid on one of them, since it tells nobody."""

    live = False

    def __init__(self, root: str) -> None:
        self.secrets = (secrets.token_hex(32),)
        self.root = root

    async def open(self, order: Order) -> Session:
        session = new_id(_SESSION)
        return Session(session, f"{self.root}/checkout/{session}", int(time.time()) + _LIFETIME)

    async def close(self) -> None:
        """Holds nothing."""

    def is_session(self, text: str) -> bool:
        """Whether this is the name of one of its pages."""
        return is_id(_SESSION, text)

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
