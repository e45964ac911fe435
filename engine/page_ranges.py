"""The pages that the option `pages` selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from engine.errors import InvalidOption
from engine.options import split_list

_ALL = "all"
_SPAN = re.compile(r"\s*([0-9]{1,9})\s*(?:(-)\s*(?:([0-9]{1,9})\s*)?)?")
_MAX_SELECTED = 10_000  # pages with repetitions; adding a page to a PDF takes time in proportion to those before it


@dataclass(frozen=True)
class PageRanges:
    """Selected pages as ranges (first, last), counted from 1, in the order given; None is the last page of the file."""

    spans: tuple[tuple[int, int | None], ...] = ((1, None),)

    def __post_init__(self) -> None:
        for first, last in self.spans:
            if not 0 < first <= (first if last is None else last):
                value = str(first) if first == last else f"{first}-{last}"
                raise invalid_pages("pages must be numbers from 1, ranges from low to high.", {"value": value})

    @classmethod
    def parse(cls, text: str) -> PageRanges:
        """Parses page numbers, ranges such as `3-5` and `7-`, and `all`, in any order. A comma at the end is allowed.

        Raises InvalidOption.
        """
        parts = split_list(text)
        if len(parts) > 1 and not parts[-1].strip():
            parts.pop()
        return cls(tuple(map(_parse_span, parts)))

    def indexes(self, page_count: int) -> list[int]:
        """Returns page indexes counted from 0, each once. Raises InvalidOption for a page beyond `page_count`."""
        return list(dict.fromkeys(chain.from_iterable(self._ranges(page_count))))

    def order(self, page_count: int) -> list[int]:
        """Returns page indexes as `indexes` does, but those that are repeated each time. Raises InvalidOption."""
        ranges = self._ranges(page_count)
        if sum(map(len, ranges)) > _MAX_SELECTED:
            raise invalid_pages(f"pages must name at most {_MAX_SELECTED} pages.", {"max": _MAX_SELECTED})
        return list(chain.from_iterable(ranges))

    def _ranges(self, page_count: int) -> list[range]:
        last = max(first if last is None else last for first, last in self.spans)
        if last > page_count:
            message = f"The file has no page {last}; its last page is {page_count}."
            raise invalid_pages(message, {"page": last, "page_count": page_count})
        return [range(first - 1, page_count if last is None else last) for first, last in self.spans]


def invalid_pages(message: str, details: Mapping[str, Any], reason: str = "out_of_range") -> InvalidOption:
    """Returns the error for the option `pages`."""
    return InvalidOption(message, reason=reason, param="pages", details=details)


def _parse_span(text: str) -> tuple[int, int | None]:
    if text.strip() == _ALL:
        return 1, None
    match = _SPAN.fullmatch(text)
    if match is None:
        message = "pages must be numbers from 1, such as 2,5,8, 3-5 or 7-."
        raise invalid_pages(message, {"value": text[:40]}, "malformed")
    first, dash, last = match.groups()
    return int(first), int(last) if last else None if dash else int(first)
