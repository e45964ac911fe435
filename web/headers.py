"""The headers of every answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from config.tariff import RATE_WINDOW
from storage.limits import Verdict

_EXPOSED = (
    "X-Request-Id",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Credits-Remaining",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Content-Disposition",
    "ETag",
)

PREFLIGHT: Mapping[str, str] = MappingProxyType(
    {
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, Idempotency-Key, If-None-Match",
        "Access-Control-Max-Age": "86400",
    }
)


def common(request_id: str) -> dict[str, str]:
    """What goes with any answer, a page of any origin reading it included."""
    return {
        "Server": "convertd",
        "X-Request-Id": request_id,
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": ", ".join(_EXPOSED),
    }


def limits(verdict: Verdict) -> dict[str, str]:
    """Where the client's request limit stands, in its own words and in those of the IETF."""
    return {
        "X-RateLimit-Limit": str(verdict.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset": str(verdict.reset_unix),
        "RateLimit-Policy": f'"default";q={verdict.limit};w={RATE_WINDOW}',
        "RateLimit": f'"default";r={verdict.remaining};t={verdict.retry_after}',
    }
