"""Request bodies while they arrive: in memory, discarded, or, in the module `multipart`, as a form."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from python_multipart.multipart import parse_options_header

from web.api.errors import BodyTooLarge, InvalidParameter

_MAX_HEADER_VALUE = 4 << 10  # bytes of a header with parameters; the time to parse it grows with the square
_DRAIN_BYTES = 32 << 20
_DRAIN_SECONDS = 10


class Body(Protocol):
    """Receives the body of a request."""

    async def write(self, chunk: bytes) -> None:
        """Receives the next bytes. Raises ApiError."""

    def close(self) -> None:
        """Releases memory and files. The request has ended."""


class MemoryBody:
    """A body of at most `limit` bytes in memory. Raises BodyTooLarge if its expected `length` is larger."""

    def __init__(self, limit: int, length: int = 0) -> None:
        if length > limit:
            raise BodyTooLarge(limit)
        self._limit = limit
        self._content = bytearray()

    async def write(self, chunk: bytes) -> None:
        self._content += chunk
        if len(self._content) > self._limit:
            raise BodyTooLarge(self._limit)

    def close(self) -> None:
        self._content.clear()

    @property
    def content(self) -> bytes:
        return bytes(self._content)


class DiscardedBody:
    """The rest of the body of a refused request. Calls `abort` after 32 MiB or 10 seconds.

    If the connection were closed while the client is sending, the client might not receive the response.
    """

    def __init__(self, abort: Callable[[], object]) -> None:
        self._abort = abort
        self._remaining = _DRAIN_BYTES
        self._timer = asyncio.get_running_loop().call_later(_DRAIN_SECONDS, abort)

    async def write(self, chunk: bytes) -> None:
        self._remaining -= len(chunk)
        if self._remaining < 0:
            self._abort()

    def close(self) -> None:
        self._timer.cancel()


def content_length(header: str | None) -> int:
    """The value of a Content-Length header in bytes; 0 without a valid one."""
    digits = header is not None and re.fullmatch(r"[0-9]{1,4000}", header)
    return int(digits[0]) if digits else 0


def parse_header(value: str | bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The value, in lower case, and the parameters of Content-Type or Content-Disposition. Raises InvalidParameter."""
    if len(value) > _MAX_HEADER_VALUE:
        raise malformed(f"A header with parameters is longer than {_MAX_HEADER_VALUE} bytes.")
    return parse_options_header(value)


def malformed(message: str, *, reason: str = "malformed") -> InvalidParameter:
    """The error for a malformed request."""
    return InvalidParameter(message, reason=reason)
