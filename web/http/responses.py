"""Content negotiation, JSON, compression, and error responses for requests that reach no handler."""

import gzip
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler

from config.pricing import RATE_WINDOW
from storage.ids import new_id
from storage.rate_limits import unused
from web.api.errors import STATUS, ApiError, envelope, error_headers
from web.api.headers import HEADERS, common_headers, rate_limit_headers
from web.locale.languages import ENGLISH, LANGUAGES, Language

log = logging.getLogger("convertd.access")

_JSON = "application/json"
_WEIGHT = re.compile(r"0(\.\d*)?|1(\.0*)?", re.ASCII)
_MAX_TEXTS = 64
_DOCUMENTED = {name.lower(): name for name in HEADERS}
_MIN_COMPRESSED = 1024  # bytes; shorter bodies fit in one packet anyway


def wants_json(accept: str) -> bool:
    """Whether an Accept header names JSON, and no other concrete media type with a higher weight."""
    if _JSON not in accept.lower():
        return False
    weights = _weights(accept)
    json_weight = weights.pop(_JSON, 0.0)
    others = (weight for media_type, weight in weights.items() if "*" not in media_type)
    return json_weight > 0 and json_weight >= max(others, default=0.0)


def wants_html(accept: str) -> bool:
    """Whether an Accept header names HTML, as browsers do when they open a page."""
    return "text/html" in accept.lower()


def accepted_language(accept_language: str) -> Language:
    """The language that an Accept-Language header prefers among those of pages and emails, by default English."""
    weights = _weights(accept_language)
    tags = sorted((tag for tag, weight in weights.items() if weight), key=lambda tag: -weights[tag])
    codes = (tag.partition("-")[0] for tag in tags)
    return next((LANGUAGES[code] for code in codes if code in LANGUAGES), ENGLISH)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    weights = _weights(accept_encoding)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


class TextCompression(OutputTransform):
    """Compresses text and JSON of at least 1 KiB with gzip.

    Tornado's own transform would also compress files that clients save, ranges, and responses that must not be stored.
    The latter can contain secrets, whose compressed size would reveal them to an attacker who adds text to the
    response (BREACH). Responses that are compressed already stay as they are.
    """

    def __init__(self, request: HTTPServerRequest) -> None:
        self._accepted = request.headers.get("Accept-Encoding", "")

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        media_type = headers.get("Content-Type", "").partition(";")[0]
        is_text = media_type == _JSON or media_type.startswith("text/")
        is_whole = status_code != 206 and headers.get("Content-Length") == str(len(chunk))
        is_secret = "no-store" in headers.get("Cache-Control", "")
        is_finished = "Content-Disposition" in headers or "Content-Encoding" in headers
        if not is_text or not is_whole or is_secret or is_finished or len(chunk) < _MIN_COMPRESSED:
            return status_code, headers, chunk
        headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
        if accepts_gzip(self._accepted):
            chunk = _compressed(chunk)
            headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(chunk))
            headers.pop("Accept-Ranges", None)
            etag = headers.get("ETag")
            if etag is not None and not etag.startswith("W/"):
                headers["ETag"] = f"W/{etag}"  # a strong one identifies the uncompressed bytes
        return status_code, headers, chunk


class HeaderNames(OutputTransform):
    """Sends the names of headers as the documentation has them. Tornado capitalizes their words: X-Ratelimit-Limit."""

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        return status_code, _DocumentedHeaders(headers), chunk


class _DocumentedHeaders(HTTPHeaders):
    def get_all(self) -> Iterator[tuple[str, str]]:
        for name, value in super().get_all():
            yield _DOCUMENTED.get(name.lower(), name), value


def _compressed(text: bytes) -> bytes:
    return gzip.compress(text, compresslevel=6, mtime=0)


@dataclass(frozen=True)
class Text:
    """The body of responses that are the same for many requests, and its compressed form."""

    plain: bytes
    compressed: bytes

    def write(self, handler: RequestHandler) -> None:
        """Responds with the text."""
        if accepts_gzip(handler.request.headers.get("Accept-Encoding", "")):
            handler.set_header("Content-Encoding", "gzip")
            handler.add_header("Vary", "Accept-Encoding")
            handler.write(self.compressed)
        else:
            handler.write(self.plain)


class TextCache:
    """The 64 texts that were used last."""

    def __init__(self) -> None:
        self._texts: OrderedDict[Hashable, Text] = OrderedDict()

    def get(self, key: Hashable) -> Text | None:
        """The text with this key, if it is known."""
        if key in self._texts:
            self._texts.move_to_end(key)
        return self._texts.get(key)

    def add(self, key: Hashable, text: bytes) -> Text:
        """Compresses a text and remembers it."""
        added = self._texts[key] = Text(text, _compressed(text))
        if len(self._texts) > _MAX_TEXTS:
            self._texts.popitem(last=False)
        return added


def _weights(header: str) -> dict[str, float]:
    """The values of an Accept header in lower case, each with its q: 1 without one, 0 for an invalid one."""
    weights: dict[str, float] = {}
    for entry in header.lower().split(","):
        value, *parameters = (part.strip() for part in entry.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        weight = next((text.strip() for name, _, text in pairs if name.strip() == "q"), "1")
        weights[value] = max(weights.get(value, 0.0), float(weight) if _WEIGHT.fullmatch(weight) else 0.0)
    return weights


def write_json(handler: RequestHandler, value: Mapping[str, Any] | bytes) -> None:
    """Responds with JSON, given as a value or encoded."""
    body = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    handler.set_header("Content-Type", _JSON)
    handler.set_header("Content-Length", str(len(body)))
    handler.write(body)


def error_response(error: ApiError, rate_limit: int) -> bytes:
    """A complete HTTP response with the error and `Connection: close`. `rate_limit` is for the headers."""
    request_id = new_id("req")
    status = STATUS[error.code]
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
