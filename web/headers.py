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
    "Idempotency-Replayed",
    "Retry-After",
    "WWW-Authenticate",
    "RateLimit",
    "RateLimit-Policy",
    "Content-Disposition",
    "Content-Range",
    "Accept-Ranges",
    "ETag",
)

_ACCEPTED = (
    "Authorization",
    "Content-Type",
    "Accept",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Range",
)

PREFLIGHT: Mapping[str, str] = MappingProxyType(
    {
        "Access-Control-Allow-Headers": ", ".join(_ACCEPTED),
        "Access-Control-Max-Age": "86400",
    }
)

PRIVATE: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store"})
"""Of what no cache may keep."""

DOWNLOAD: Mapping[str, str] = MappingProxyType(
    {
        # What is in the file runs nowhere, should a browser show it after all.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-store",
        "Referrer-Policy": "no-referrer",
    }
)


_COMMON: Mapping[str, str] = MappingProxyType(
    {
        "Server": "convertd",
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": ", ".join(_EXPOSED),
    }
)


def common(request_id: str) -> dict[str, str]:
    """What goes with any answer, a page of any origin reading it included."""
    return {**_COMMON, "X-Request-Id": request_id}


def limits(verdict: Verdict) -> dict[str, str]:
    """Where the client's request limit stands, in its own words and in those of the IETF."""
    return {
        "X-RateLimit-Limit": str(verdict.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset": str(verdict.reset_unix),
        "RateLimit-Policy": f'"default";q={verdict.limit};w={RATE_WINDOW}',
        "RateLimit": f'"default";r={verdict.remaining};t={verdict.retry_after}',
    }
