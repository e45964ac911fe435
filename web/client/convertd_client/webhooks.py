"""Webhooks: verifies messages that convertd sends to a server of yours."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class InvalidWebhook(ValueError):
    """The message was not signed with the secret, or it was not sent now."""


@dataclass(frozen=True)
class WebhookMessage:
    """A message about an event. A message that is sent again has the same `id`."""

    id: str
    type: str
    timestamp: str
    data: Mapping[str, Any]


def verify_webhook(
    body: bytes | str, headers: Mapping[str, str], secret: str, *, tolerance: float = 300.0
) -> WebhookMessage:
    """Returns the message of a request to a webhook. Raises InvalidWebhook.

    `body` is the body as it arrived, `secret` the `whsec_…` of the webhook. The clocks of both servers may differ by
    `tolerance` seconds: an older request may be a recorded one that is sent again.
    """
    content = body.encode() if isinstance(body, str) else body
    sent = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, signatures = (sent[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        age = abs(time.time() - int(timestamp))
    except (KeyError, ValueError, binascii.Error):
        raise InvalidWebhook("The secret or a header of the message is missing or malformed.") from None
    signed = hmac.new(key, f"{message_id}.{timestamp}.".encode() + content, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(signed).decode()}"
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in signatures.split()):
        raise InvalidWebhook("The message was not signed with this secret.")
    if age > tolerance:
        raise InvalidWebhook("The message is too old, or the clock is wrong.")
    event = json.loads(content)
    return WebhookMessage(message_id, event["type"], event["timestamp"], event["data"])
