"""The headers of every answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from config.pricing import RATE_WINDOW
from storage.rate_limits import RateLimitStatus

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

PREFLIGHT_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Access-Control-Allow-Headers": ", ".join(_ACCEPTED),
        "Access-Control-Max-Age": "86400",
    }
)

NO_STORE: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store"})
"""Of what no cache may keep."""

DOWNLOAD_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # What is in the file runs nowhere, should a browser show it after all.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-store",
        "Referrer-Policy": "no-referrer",
    }
)


_COMMON_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "Server": "convertd",
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": ", ".join(_EXPOSED),
    }
)


def common_headers(request_id: str) -> dict[str, str]:
    """What goes with any answer, a page of any origin reading it included."""
    return {**_COMMON_VALUES, "X-Request-Id": request_id}


def rate_limit_headers(verdict: RateLimitStatus) -> dict[str, str]:
    """Where the client's request limit stands, in its own words and in those of the IETF."""
    return {
        "X-RateLimit-Limit": str(verdict.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset": str(verdict.reset_unix),
        "RateLimit-Policy": f'"default";q={verdict.limit};w={RATE_WINDOW}',
        "RateLimit": f'"default";r={verdict.remaining};t={verdict.retry_after}',
    }


_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 0}

COMMON_HEADERS = (
    "X-Request-Id",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit-Policy",
    "RateLimit",
    "X-Content-Type-Options",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
)
"""The headers of every answer."""

_ALWAYS = (*COMMON_HEADERS, "WWW-Authenticate", "Allow", "Content-Range", "Location", "Vary")

HEADERS: Mapping[str, tuple[str, Mapping[str, Any], Any]] = MappingProxyType(
    {
        "X-Request-Id": ("Names the request in the server's log.", _TEXT, "req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "X-RateLimit-Limit": ("Requests in a window of 60 seconds.", _NUMBER, 60),
        "X-RateLimit-Remaining": ("Requests that are left in this window.", _NUMBER, 59),
        "X-RateLimit-Reset": ("When the window ends, in Unix time (seconds).", _NUMBER, 1795238640),
        "RateLimit-Policy": ("The limit, as the IETF writes it.", _TEXT, '"default";q=60;w=60'),
        "RateLimit": ("Where the limit stands, as the IETF writes it.", _TEXT, '"default";r=59;t=41'),
        "X-Content-Type-Options": ("Content is what its type says.", {"const": "nosniff"}, "nosniff"),
        "Access-Control-Allow-Origin": ("Pages of any origin may read the answer.", {"const": "*"}, "*"),
        "Access-Control-Expose-Headers": ("The headers that such pages may read.", _TEXT, "X-Request-Id, Retry-After"),
        "X-Credits-Remaining": ("The balance after this request.", _NUMBER, 49),
        "Retry-After": ("Seconds to wait.", {"type": "integer", "minimum": 1}, 17),
        "Idempotency-Replayed": ("The answer is the one that the request had before.", {"const": "true"}, "true"),
        "Content-Disposition": (
            "The file's name, made of the client's.",
            _TEXT,
            "attachment; filename=\"photo.webp\"; filename*=UTF-8''photo.webp",
        ),
        "Content-Range": ("The part, and the bytes of the whole.", _TEXT, "bytes 0-99/20104"),
        "Content-Security-Policy": ("What is in the file runs nowhere.", _TEXT, "default-src 'none'; sandbox"),
        "Accept-Ranges": ("The file can be had in parts.", {"const": "bytes"}, "bytes"),
        "ETag": ("Changes with the content.", _TEXT, 'W/"5f2b9c"'),
        "Cache-Control": ("Who may keep the answer, and how long.", _TEXT, "no-store"),
        "Referrer-Policy": ("Other sites do not hear of this address.", {"const": "no-referrer"}, "no-referrer"),
        "Vary": ("The header of the request that the answer depends on.", _TEXT, "Accept"),
        "Location": ("Where to go on.", {"type": "string", "format": "uri-reference"}, "/developers/verify#token=0123"),
        "WWW-Authenticate": ("How to show a key.", {"const": "Bearer"}, "Bearer"),
        "Allow": ("The verbs that the path answers to.", _TEXT, "POST, OPTIONS"),
    }
)


def header_components() -> dict[str, Any]:
    """All headers, to be referred to."""
    return {
        name: {"description": description, "schema": dict(schema), "example": example, "required": name in _ALWAYS}
        for name, (description, schema, example) in HEADERS.items()
    }


def header_refs(names: Iterable[str]) -> dict[str, Any]:
    """These headers and those of every answer."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*COMMON_HEADERS, *sorted({*names}))}
