"""Options of a conversion, validated when created, and page ranges such as `2,5,8` or `3-5`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.errors import InvalidOption

_SPAN = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")


@dataclass(frozen=True)
class Pages:
    """Selected pages as ranges (first, last), counted from 1: sorted, separated by gaps, at least one."""

    spans: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        sorted_apart = all(before[1] < after[0] for before, after in pairwise(self.spans))
        if not self.spans or not sorted_apart or any(not 0 < first <= last for first, last in self.spans):
            raise invalid_pages("pages must name pages from 1, such as 2,5,8 or 3-5.", {})

    @classmethod
    def parse(cls, text: str) -> Pages:
        """Parses page numbers and ranges in any order, duplicates allowed. Raises InvalidOption."""
        spans = sorted(_parse_span(part) for part in text.split(","))
        merged = [spans[0]]
        for first, last in spans[1:]:
            if first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    def indexes(self, page_count: int) -> list[int]:
        """Returns page indexes counted from 0. Raises InvalidOption for a page beyond `page_count`."""
        last = self.spans[-1][1]
        if last > page_count:
            message = f"The document has no page {last}; its last page is {page_count}."
            raise invalid_pages(message, {"page": last, "page_count": page_count})
        return [number - 1 for first, last in self.spans for number in range(first, last + 1)]


def invalid_pages(message: str, details: Mapping[str, Any], reason: str = "out_of_range") -> InvalidOption:
    """Returns the error for the option `pages`."""
    return InvalidOption(message, reason=reason, param="pages", details=details)


def _parse_span(text: str) -> tuple[int, int]:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise invalid_pages("pages must be numbers from 1, such as 2,5,8 or 3-5.", {"value": text[:40]}, "malformed")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 0 < first <= last:
        raise invalid_pages("pages must be numbers from 1, ranges from low to high.", {"value": text[:40]})
    return first, last


@dataclass(frozen=True)
class Options:
    """Options of a conversion. Raises InvalidOption for values out of range."""

    quality: int | None = None  # 1-100, for lossy targets
    pages: Pages | None = None
    password: str | None = field(default=None, repr=False)  # for encrypted inputs

    def __post_init__(self) -> None:
        if self.quality is not None and not (type(self.quality) is int and 1 <= self.quality <= 100):
            raise InvalidOption(
                "quality must be an integer from 1 to 100.",
                reason="out_of_range",
                param="quality",
                details={"min": 1, "max": 100},
            )
