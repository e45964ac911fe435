"""Downloads of stored results: whole, conditional (ETag), or a range (RFC 9110, section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from web.api.errors import RangeNotSatisfiable
from web.http.handler import BaseHandler

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Range:
    """The bytes from `start` to before `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


async def send_stored(handler: BaseHandler, file_id: str) -> None:
    """Sends the stored result of a file, or the requested range of it. Raises NotFound, RangeNotSatisfiable."""
    files, etag = handler.services.files, f'"{file_id}"'  # the result of a file id never changes
    result = await files.processed(handler.client().id, file_id)
    handler.set_header("Accept-Ranges", "bytes")
    handler.set_header("ETag", etag)
    if handler.request.method in ("GET", "HEAD") and handler.check_etag_header():
        handler.set_status(304)
        return
    part = _range_of(handler, result.size, etag) or Range(0, result.size)
    if part.size < result.size:
        handler.set_status(206)
        handler.set_header("Content-Range", f"bytes {part.start}-{part.end - 1}/{result.size}")
    blocks = files.read(result, part.start, part.end)
    await handler.send_file(
        blocks,
        size=part.size,
        media_type=result.media_type,
        filename=result.filename,
        warnings=[code for code, _ in result.warnings],
    )


def _range_of(handler: BaseHandler, size: int, etag: str) -> Range | None:
    headers = handler.request.headers
    if handler.request.method != "GET" or headers.get("If-Range", etag) != etag:
        return None
    return requested_range(headers.get("Range"), size)


def requested_range(header: str | None, size: int) -> Range | None:
    """The range that a Range header requests of a file of `size` bytes; None for the whole file.

    Headers with several ranges and malformed headers request the whole file. Raises RangeNotSatisfiable for a range
    that starts after the end.
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable(size)
    return Range(start, end)
