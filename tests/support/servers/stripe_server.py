"""A simulated Stripe on a free port: checkout sessions, payments, and signed events."""

from __future__ import annotations

import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import parse_qsl

import httpx
from stripe import WebhookSignature

from tests.support.requests import http
from tests.support.servers.receiver import Received, Receiver, Send, reply

KEY = "sk_test_of_the_tests"
SECRET = "whsec_of_the_tests"
_REQUIRED = ("mode", "success_url", "line_items[0][price_data][currency]", "line_items[0][price_data][unit_amount]")


class StripeServer(Receiver):
    """Records the sessions it opens. `trouble` lists error statuses to respond with, or delays in seconds."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.sessions: dict[str, dict[str, Any]] = {}
        self.orders: list[dict[str, str]] = []
        self.trouble: list[int | float] = []
        self._by_key: dict[str, tuple[dict[str, str], str]] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a convertd server that uses this Stripe."""
        return {"stripe_secret_key": KEY, "stripe_webhook_secret": SECRET, "stripe_api_base": self.url}

    def open(self, fields: dict[str, str], key: str) -> tuple[int, dict[str, Any]]:
        """POST /v1/checkout/sessions."""
        with self._lock:
            self.orders.append(fields)
            if missing := [name for name in _REQUIRED if name not in fields]:
                return 400, _error("invalid_request_error", f"Missing required param: {missing[0]}.", param=missing[0])
            if key in self._by_key:
                known, session = self._by_key[key]
                if known != fields:
                    return 400, _error("idempotency_error", "Keys can only be used with the same parameters.")
                return 200, self.sessions[session]
            made = self._session(fields)
            self.sessions[made["id"]] = made
            self._by_key[key] = (fields, made["id"])
            return 200, made

    def _session(self, fields: dict[str, str]) -> dict[str, Any]:
        name = f"cs_test_{secrets.token_hex(16)}"
        return {
            "id": name,
            "object": "checkout.session",
            "amount_total": int(fields["line_items[0][price_data][unit_amount]"]),
            "client_reference_id": fields.get("client_reference_id"),
            "currency": fields["line_items[0][price_data][currency]"],
            "expires_at": int(fields["expires_at"]),
            "livemode": False,
            "locale": fields.get("locale"),
            "total_details": {"amount_tax": 0},
            "billing_address_collection": fields.get("billing_address_collection"),
            "tax_behavior": fields.get("line_items[0][price_data][tax_behavior]"),
            **{
                name: {"enabled": fields.get(f"{name}[enabled]") == "true"}
                for name in ("automatic_tax", "tax_id_collection", "invoice_creation")
            },
            "payment_intent": None,
            "payment_status": "unpaid",
            "status": "open",
            "url": f"{self.url}/c/pay/{name}",
        }

    def paid(self, session: str) -> dict[str, Any]:
        """Pays a session and returns it."""
        found = self.sessions[session]
        payment = found["payment_intent"] or f"pi_{secrets.token_hex(12)}"
        found |= {"status": "complete", "payment_status": "paid", "payment_intent": payment}
        if found["automatic_tax"]["enabled"]:  # 19 %, in the price or added to it
            included = found["tax_behavior"] == "inclusive"
            tax = round(found["amount_total"] * 19 / (119 if included else 100))
            found |= {
                "total_details": {"amount_tax": tax},
                "amount_total": found["amount_total"] + tax * (not included),
            }
        found["customer_details"] = {"name": "Buyer & Sons", "address": None, "tax_ids": []}
        if found["billing_address_collection"] == "required":
            street = {"line1": "1 Main Street", "line2": None, "postal_code": "10115", "city": "Berlin"}
            found["customer_details"]["address"] = {**street, "country": "DE"}
        if found["tax_id_collection"]["enabled"]:
            found["customer_details"]["tax_ids"] = [{"value": "DE987654321"}]
        if found["invoice_creation"]["enabled"]:
            found["invoice"] = f"in_{secrets.token_hex(12)}"
        return found

    def _respond(self, request: Received, send: Send) -> None:
        status, value = self._answer(request)
        headers = {"content_type": "application/json", "request_id": f"req_{secrets.token_hex(7)}"}
        reply(status, json.dumps(value).encode(), **headers)(request, send)

    def _answer(self, request: Received) -> tuple[int, dict[str, Any]]:
        if request.method == "GET":
            known = self.sessions.get(request.path.removeprefix("/c/pay/"))
            return (200, known) if known else (404, _error("invalid_request_error", "No such session."))
        trouble = self.trouble.pop(0) if self.trouble else 0
        if isinstance(trouble, float):
            time.sleep(trouble)
        elif trouble:
            return trouble, _error("api_error", "Something went wrong on Stripe's end.")
        if request.headers["authorization"] != f"Bearer {KEY}":
            return 401, _error("invalid_request_error", f"Invalid API Key provided: {KEY[:9]}***")
        if request.path != "/v1/checkout/sessions":
            return 404, _error("invalid_request_error", "Unrecognized request URL.")
        fields = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        return self.open(fields, request.headers["idempotency-key"])


def event(kind: str, about: dict[str, Any], **fields: Any) -> bytes:
    """The body of an event."""
    told = {
        "id": f"evt_{secrets.token_hex(12)}",
        "object": "event",
        "api_version": "2026-10-28.endive",
        "created": int(time.time()),
        "data": {"object": about},
        "livemode": False,
        "pending_webhooks": 1,
        "type": kind,
    }
    return json.dumps(told | fields, indent=2).encode()


def signature(body: bytes, secret: str = SECRET, *, age: int = 0) -> str:
    """The signature header of an event that is `age` seconds old."""
    header: str = WebhookSignature.generate_signature_header(body.decode(), secret, int(time.time()) - age)
    return header


def send(api: str, body: bytes, header: str | None = None) -> httpx.Response:
    """Delivers an event."""
    headers = {"Content-Type": "application/json", "Stripe-Signature": header or signature(body)}
    return http.post(f"{api}/webhooks/stripe", content=body, headers=headers, timeout=30)


def _error(kind: str, message: str, **fields: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message, **fields}}
