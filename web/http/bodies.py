"""Request bodies: the interface to receive them, bodies in memory, and strict parsers of JSON and web forms."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header

from web.api.errors import BodyTooLarge, InvalidParameter

_MAX_FORM_FIELDS = 50
_MAX_DEPTH = 32
_MAX_HEADER_VALUE = 4 << 10  # bytes of a header with parameters; the time to parse it grows with the square
_DRAIN_BYTES = 32 << 20
_DRAIN_SECONDS = 10
_CHARSETS = ("utf-8", "utf8", "us-ascii")


class Body(Protocol):
    """Receives the body of a request."""

    async def start(self, length: int | None) -> None:
        """Prepares for `length` bytes, None if unknown. Raises ApiError if they cannot be received."""

    async def write(self, chunk: bytes) -> None:
        """Receives the next bytes. Raises ApiError."""

    def close(self) -> None:
        """Releases memory and files. The request has ended."""


def content_length(header: str | None) -> int | None:
    """The value of a Content-Length header in bytes. None without a valid one."""
    digits = header is not None and re.fullmatch(r"[0-9]{1,4000}", header)
    return int(digits[0]) if digits else None


class MemoryBody:
    """A body of at most `limit` bytes in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._content = bytearray()

    async def start(self, length: int | None) -> None:
        if (length or 0) > self._limit:
            raise BodyTooLarge(self._limit)

    async def write(self, chunk: bytes) -> None:
        self._content += chunk
        if len(self._content) > self._limit:
            raise BodyTooLarge(self._limit)

    def close(self) -> None:
        self._content.clear()

    @property
    def content(self) -> bytes:
        return bytes(self._content)


class BodyDrain:
    """Discards the rest of the body of a refused request, up to 32 MiB, and calls `abort` after 10 seconds.

    If the connection were closed while the client is sending, the client might not receive the response.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self._remaining = _DRAIN_BYTES
        self._timer = asyncio.get_running_loop().call_later(_DRAIN_SECONDS, abort)

    def exceeded(self, chunk: bytes) -> bool:
        """Discards a chunk. Returns whether the size limit is exceeded."""
        self._remaining -= len(chunk)
        return self._remaining < 0

    def close(self) -> None:
        """Stops the timer, which refers to the handler."""
        self._timer.cancel()


def parse_header(value: str | bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The value, in lower case, and the parameters of Content-Type or Content-Disposition. Raises InvalidParameter."""
    if len(value) > _MAX_HEADER_VALUE:
        raise malformed(f"A header with parameters is longer than {_MAX_HEADER_VALUE} bytes.")
    return parse_options_header(value)


def malformed(message: str, *, reason: str = "malformed") -> InvalidParameter:
    """The error for a malformed request."""
    return InvalidParameter(message, reason=reason)


def read_json(body: bytes, content_type: str) -> Mapping[str, Any]:
    """Parses a JSON object. An empty body is an empty object. Raises InvalidParameter."""
    if _charset(content_type) not in _CHARSETS:
        raise malformed("The body must be in UTF-8.")
    if not body.strip():
        return {}
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=_unique_names, parse_constant=_reject_constant, parse_float=_finite
        )
        json.dumps(value, ensure_ascii=False).encode()  # rejects lone surrogates, which no response can contain
        depth = _depth(value)
    except (ValueError, RecursionError):
        raise malformed("The body is not valid JSON.") from None
    if depth > _MAX_DEPTH:
        raise malformed(f"The body is nested more than {_MAX_DEPTH} levels deep.")
    if not isinstance(value, dict):
        raise malformed("The body must be a JSON object.")
    return value


def read_web_form(body: bytes) -> Mapping[str, str]:
    """Parses an URL-encoded form. The last of repeated fields counts. Raises InvalidParameter."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS))
    except ValueError:
        raise malformed("The form is malformed.") from None


def _charset(content_type: str) -> str:
    _, parameters = parse_header(content_type)
    return parameters.get(b"charset", b"utf-8").decode("latin-1").lower()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("duplicate name")
    return members


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError("number out of range")
    return value


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
