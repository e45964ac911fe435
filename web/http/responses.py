"""The Accept header, the names of headers, and complete error responses for requests that reach no handler."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from http.client import responses
from types import MappingProxyType

from tornado.httputil import HTTPHeaders
from tornado.web import OutputTransform

from config.pricing import RATE_WINDOW
from storage.ids import new_id
from storage.rate_limits import unused
from web.api.errors import STATUS, ApiError, envelope, error_headers
from web.api.headers import HEADERS, common_headers, rate_limit_headers

log = logging.getLogger("convertd.access")

_JSON = "application/json"
_NAMES = MappingProxyType({next(iter(HTTPHeaders({name: ""}))): name for name in HEADERS})
"""The names of the API's headers, by how Tornado spells them."""


def wants_json(accept: str) -> bool:
    """Whether an Accept header names JSON, and no other concrete media type with a higher weight."""
    json_weight, other_weight = 0.0, 0.0
    for entry in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        weight = _weight(parameters)
        if media_type == _JSON:
            json_weight = max(json_weight, weight)
        elif "*" not in media_type:
            other_weight = max(other_weight, weight)
    return json_weight > 0 and json_weight >= other_weight


def _weight(parameters: list[str]) -> float:
    """The q parameter, 1 without one, 0 for an invalid one."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if re.fullmatch(r"\s*(0(\.\d*)?|1(\.0*)?)\s*", value, re.ASCII) else 0.0
    return 1.0


class HeaderNames(OutputTransform):
    """Sends headers with the names that the API documents: X-RateLimit-Limit, not X-Ratelimit-Limit."""

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        return status_code, _DocumentedHeaders(headers), chunk


class _DocumentedHeaders(HTTPHeaders):
    def get_all(self) -> Iterator[tuple[str, str]]:
        return ((_NAMES.get(name, name), value) for name, value in super().get_all())


def error_response(error: ApiError, rate_limit: int) -> bytes:
    """A complete HTTP response with the error and `Connection: close`. `rate_limit` is for the headers."""
    request_id, status = new_id("req"), STATUS[error.code]
    body = json.dumps(envelope(error, request_id)).encode()
    headers = {
        **common_headers(request_id),
        **rate_limit_headers(unused(rate_limit, RATE_WINDOW, time.time())),
        **error_headers(error),
        "Content-Type": _JSON,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    fields = {"status": status, "request_id": request_id, "code": error.code, "reason": error.reason}
    log.info("refused", extra={"fields": fields})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {responses[status]}\r\n{lines}\r\n".encode() + body
