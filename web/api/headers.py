"""HTTP headers: values with parameters, and one table of all response headers, for CORS, OpenAPI and the handlers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from anyascii import anyascii
from python_multipart.multipart import parse_options_header

from engine.file_names import safe_stem
from storage.rate_limits import RateLimitStatus
from web.api.errors import malformed

_TEXT: Mapping[str, Any] = MappingProxyType({"type": "string"})
_NUMBER: Mapping[str, Any] = MappingProxyType({"type": "integer", "minimum": 0})


@dataclass(frozen=True)
class ResponseHeader:
    """A response header: its JSON Schema and an example.

    `common`: sent with every response. `required`: always sent with the responses that document it. `exposed`:
    scripts of other origins may read it (CORS).
    """

    description: str
    schema: Mapping[str, Any]
    example: object
    common: bool = False
    required: bool = False
    exposed: bool = True


HEADERS: Mapping[str, ResponseHeader] = MappingProxyType(
    {
        "X-Request-Id": ResponseHeader(
            "The request's id in the server's log.", _TEXT, "req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7", common=True
        ),
        "X-RateLimit-Limit": ResponseHeader("Allowed requests per window of 60 seconds.", _NUMBER, 60, common=True),
        "X-RateLimit-Remaining": ResponseHeader("Requests left in this window.", _NUMBER, 59, common=True),
        "X-RateLimit-Reset": ResponseHeader(
            "The end of the window in Unix time (seconds).", _NUMBER, 1795238640, common=True
        ),
        "RateLimit-Policy": ResponseHeader("The limit in IETF syntax.", _TEXT, '"default";q=60;w=60', common=True),
        "RateLimit": ResponseHeader(
            "Remaining requests and seconds to the end of the window in IETF syntax.",
            _TEXT,
            '"default";r=59;t=41',
            common=True,
        ),
        "X-Content-Type-Options": ResponseHeader(
            "Browsers must not guess the content type.", {"const": "nosniff"}, "nosniff", common=True, exposed=False
        ),
        "Access-Control-Allow-Origin": ResponseHeader(
            "Scripts of any origin may read the response.", {"const": "*"}, "*", common=True, exposed=False
        ),
        "Access-Control-Expose-Headers": ResponseHeader(
            "The headers that such scripts may read.", _TEXT, "X-Request-Id, Retry-After", common=True, exposed=False
        ),
        "X-Credits-Remaining": ResponseHeader("The balance after this request in credits.", _NUMBER, 49),
        "Idempotency-Replayed": ResponseHeader(
            "The response was stored by an earlier request with the same idempotency key.", {"const": "true"}, "true"
        ),
        "Preference-Applied": ResponseHeader(
            "The preference of the header `Prefer` that the response follows.", _TEXT, "respond-async"
        ),
        "Retry-After": ResponseHeader("Seconds to wait before a retry.", {"type": "integer", "minimum": 1}, 17),
        "WWW-Authenticate": ResponseHeader("The authentication scheme.", {"const": "Bearer"}, "Bearer", required=True),
        "Content-Disposition": ResponseHeader(
            "The file name, derived from the client's.",
            _TEXT,
            "attachment; filename=\"photo.webp\"; filename*=UTF-8''photo.webp",
        ),
        "X-Warnings": ResponseHeader(
            "The codes of the result's warnings; JSON responses have their messages.",
            _TEXT,
            "alpha_flattened, pages_dropped",
        ),
        "X-Width": ResponseHeader(
            "Width of the first image of the result in pixels; not sent for vectors and documents.", _NUMBER, 1600
        ),
        "X-Height": ResponseHeader(
            "Height of the first image of the result in pixels; not sent for vectors and documents.", _NUMBER, 1200
        ),
        "Content-Range": ResponseHeader(
            "The returned range and the size of the file in bytes.", _TEXT, "bytes 0-99/20104", required=True
        ),
        "Accept-Ranges": ResponseHeader("Range requests are supported.", {"const": "bytes"}, "bytes"),
        "ETag": ResponseHeader("Identifies the content.", _TEXT, 'W/"5f2b9c"'),
        "Content-Security-Policy": ResponseHeader(
            "Browsers run no script in the file.", _TEXT, "default-src 'none'; sandbox", exposed=False
        ),
        "Cache-Control": ResponseHeader("Whether caches may store the response.", _TEXT, "no-store", exposed=False),
        "Referrer-Policy": ResponseHeader(
            "Browsers send no referrer from this page.", {"const": "no-referrer"}, "no-referrer", exposed=False
        ),
        "Vary": ResponseHeader(
            "The request header that the response depends on.", _TEXT, "Accept", required=True, exposed=False
        ),
        "Location": ResponseHeader(
            "The URL to go to.",
            {"type": "string", "format": "uri-reference"},
            "/developers/verify#token=0123",
            required=True,
        ),
        "Allow": ResponseHeader(
            "The methods that the path supports.", _TEXT, "POST, OPTIONS", required=True, exposed=False
        ),
    }
)
"""All response headers, in the order of the OpenAPI document."""

COMMON_HEADERS = tuple(name for name, header in HEADERS.items() if header.common)
"""The headers of every response."""

_COMMON_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "Server": "convertd",
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": ", ".join(name for name, header in HEADERS.items() if header.exposed),
    }
)

_ATTR_CHAR = "!#$&+-.^_`|~"  # unescaped by RFC 8187, besides ASCII alphanumerics
_MAX_LENGTH = 4 << 10  # bytes of a header with parameters; the time to parse it grows with the square
_EXTENDED = re.compile(rb";\s*+filename\*\s*+=\s*+(utf-8|iso-8859-1)'[^';\s]*+'([^;\s]++)", re.IGNORECASE)
_QUOTED = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_WARNING_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_MAX_WARNINGS = 10

_ACCEPTED = (
    "Authorization",
    "Content-Type",
    "Accept",
    "Idempotency-Key",
    "Prefer",
    "If-None-Match",
    "If-Range",
    "Range",
)

PREFLIGHT_HEADERS: Mapping[str, str] = MappingProxyType(
    {"Access-Control-Allow-Headers": ", ".join(_ACCEPTED), "Access-Control-Max-Age": "86400"}
)
"""Headers of responses to CORS preflight requests."""

NO_STORE: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store"})
"""Headers of responses that caches must not store."""

DOWNLOAD_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # If a browser displays the file instead of saving it, scripts in it must not run.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-store",
        "Referrer-Policy": "no-referrer",
    }
)
"""Headers of responses with a file."""

INLINE_HEADERS: Mapping[str, str] = MappingProxyType(
    # Browsers show no PDF in a sandbox. They run the scripts of PDFs in one of their own.
    {**DOWNLOAD_HEADERS, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; object-src 'self'"}
)
"""Headers of responses with an image or a PDF that browsers show instead of saving it."""


def parse_header(value: str | bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The value, in lower case, and the parameters of Content-Type or Content-Disposition. Raises InvalidParameter."""
    if len(value) > _MAX_LENGTH:
        raise malformed(f"A header with parameters is longer than {_MAX_LENGTH} bytes.")
    return parse_options_header(value)


def extended_filename(disposition: bytes) -> str:
    """The parameter `filename*` of Content-Disposition, as a non-ASCII name is sent (RFC 5987); empty without one."""
    extended = _EXTENDED.search(_QUOTED.sub(b'""', disposition))
    return unquote_to_bytes(extended[2]).decode(extended[1].decode(), "replace") if extended else ""


def content_type(media_type: str) -> str:
    """The value of Content-Type for a result. Texts are in UTF-8."""
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


def content_disposition(name: str, kind: str = "attachment") -> str:
    """The value of Content-Disposition for a file of this name (RFC 6266), which is saved unless `kind` is `inline`."""
    stem, _, extension = anyascii(name).rpartition(".")
    ascii_name = re.sub(r"%|[^ -~]", "_", f"{safe_stem(stem) or 'file'}.{extension}")
    return f"{kind}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHAR)}"


def common_headers(request_id: str) -> dict[str, str]:
    """The headers of every response, without the rate limit."""
    return {**_COMMON_VALUES, "X-Request-Id": request_id}


def rate_limit_headers(status: RateLimitStatus) -> dict[str, str]:
    """The client's rate limit, as X-RateLimit headers and in IETF syntax."""
    return {
        "X-RateLimit-Limit": str(status.limit),
        "X-RateLimit-Remaining": str(status.remaining),
        "X-RateLimit-Reset": str(status.reset),
        "RateLimit-Policy": f'"default";q={status.limit};w={status.window}',
        "RateLimit": f'"default";r={status.remaining};t={status.retry_after}',
    }


def warning_codes(codes: Iterable[str]) -> list[str]:
    """The codes that may appear in headers and logs, at most 10: codes are set by the process of a job."""
    return [code for code in codes if _WARNING_CODE.fullmatch(code)][:_MAX_WARNINGS]


def header_components() -> dict[str, Any]:
    """The header objects of the OpenAPI document, by name."""
    return {
        name: {
            "description": header.description,
            "schema": dict(header.schema),
            "example": header.example,
            "required": header.common or header.required,
        }
        for name, header in HEADERS.items()
    }


def header_refs(names: Iterable[str]) -> dict[str, Any]:
    """References to these headers and to the common ones."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*COMMON_HEADERS, *sorted({*names}))}
