"""Whole answers as bytes, to requests that never reach a handler."""

from __future__ import annotations

import json
import logging
import time
from http.client import responses

from config.tariff import RATE_WINDOW
from storage.ids import new_id
from storage.limits import fresh
from web.envelopes import envelope
from web.errors import STATUS, ApiError, InvalidParameter
from web.headers import common, limits

log = logging.getLogger("convertd.access")


def malformed(message: str) -> InvalidParameter:
    """The error of a request that is no proper HTTP."""
    return InvalidParameter(message, reason="malformed")


def refusal(error: ApiError, rate_limit: int) -> bytes:
    """A whole answer to a request that never reached a handler."""
    request_id, status = new_id("req"), STATUS[error.code]
    body = json.dumps(envelope(error, request_id)).encode()
    headers = {
        **common(request_id),
        **limits(fresh(rate_limit, RATE_WINDOW, time.time())),
        **error.headers,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    fields = {"status": status, "request_id": request_id, "code": error.code, "reason": error.reason}
    log.info("refused", extra={"fields": fields})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {responses[status]}\r\n{lines}\r\n".encode() + body
