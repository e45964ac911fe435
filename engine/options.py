"""Pages as clients name them: `2,5,8`, `3-5`."""

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
    """A choice of pages, counted from 1, as first and last of each row: in order, apart, and never empty."""

    spans: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        apart = all(before[1] < after[0] for before, after in pairwise(self.spans))
        if not self.spans or not apart or any(not 0 < first <= last for first, last in self.spans):
            raise wrong_pages("pages must name pages from 1, such as 2,5,8 or 3-5.", {})

    @classmethod
    def parse(cls, text: str) -> Pages:
        """The pages that `text` names, in any order and however often. Raises InvalidOption."""
        spans = sorted(_span(part) for part in text.split(","))
        joined = [spans[0]]
        for first, last in spans[1:]:
            if first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    def among(self, count: int) -> list[int]:
        """The same counted from 0, of a document of `count` pages. Raises InvalidOption for one beyond its last."""
        last = self.spans[-1][1]
        if last > count:
            raise wrong_pages(f"There is no page {last}: the last is {count}.", {"page": last, "page_count": count})
        return [number - 1 for first, last in self.spans for number in range(first, last + 1)]


def wrong_pages(message: str, details: Mapping[str, Any], reason: str = "out_of_range") -> InvalidOption:
    """The error for pages that cannot be had."""
    return InvalidOption(message, reason=reason, param="pages", details=details)


def _span(text: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise wrong_pages("pages must be numbers from 1, such as 2,5,8 or 3-5.", {"value": text[:40]}, "malformed")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last:
        raise wrong_pages("pages must be numbers from 1, ranges from low to high.", {"value": text[:40]})
    return first, last


@dataclass(frozen=True)
class Options:
    """What the client may choose. A value that exists is valid: anything else raises InvalidOption."""

    quality: int | None = None  # 1-100, for lossy targets
    pages: Pages | None = None
    password: str | None = field(default=None, repr=False)  # opens encrypted inputs; never shown

    def __post_init__(self) -> None:
        if self.quality is not None and not (type(self.quality) is int and 1 <= self.quality <= 100):
            raise InvalidOption(
                "quality must be an integer from 1 to 100.",
                reason="out_of_range",
                param="quality",
                details={"min": 1, "max": 100},
            )
