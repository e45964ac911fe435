"""Ranges: the part of a file that a client asks for (RFC 9110, section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from web.errors import RangeNotSatisfiable

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Range:
    """The bytes from `start` until before `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def wanted(header: str | None, size: int) -> Range | None:
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
