"""Ranges: the part of a file that a client asks for (RFC 9110, section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from web.api.errors import RangeNotSatisfiable
from web.http.handler import Handler

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Range:
    """The bytes from `start` until before `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def requested_range(header: str | None, size: int) -> Range | None:
    """The part of `size` bytes that is asked for; None for all of them.

    All is also what a header gets that asks for several parts, or that says nothing we understand. Raises
    RangeNotSatisfiable where the part lies beyond the end.
    """
    found = _RANGE.fullmatch(header or "")
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable(size)
    return Range(start, end)


class DownloadHandler(Handler):
    """A resource that answers with the bytes of stored results."""

    async def send_stored(self, file_id: str) -> None:
        """Answers with the result, or with the part of it that the client asks for. Raises Missing, NotFound."""
        made = await self.services.files.processed(self.client().id, file_id)
        self.set_header("Accept-Ranges", "bytes")
        etag = f'"{file_id}"'  # a file never changes
        self.set_header("ETag", etag)
        if self.request.method in ("GET", "HEAD") and self.check_etag_header():
            self.set_status(304)
            return
        part = self._part(made.size, etag) or Range(0, made.size)
        if part.size < made.size:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {part.start}-{part.end - 1}/{made.size}")
        await self.send_file(
            self.services.files.read(made, part.start, part.end),
            size=part.size,
            media_type=made.media_type,
            filename=made.filename,
        )

    def _part(self, size: int, etag: str) -> Range | None:
        headers = self.request.headers
        if self.request.method != "GET" or headers.get("If-Range", etag) != etag:
            return None
        return requested_range(headers.get("Range"), size)
