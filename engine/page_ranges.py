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
_SPAN = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")


@dataclass(frozen=True)
class PageRanges:
    """Selected pages as ranges (first, last), counted from 1, in the order given. No range: all pages."""

    spans: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if any(not 0 < first <= last for first, last in self.spans):
            raise invalid_pages("pages must name pages from 1, such as 2,5,8 or 3-5.", {})

    @classmethod
    def parse(cls, text: str) -> PageRanges:
        """Parses `all`, or page numbers and ranges in any order. Duplicates and a comma at the end are allowed.

        Raises InvalidOption.
        """
        if text.strip() == _ALL:
            return cls()
        parts = split_list(text)
        if len(parts) > 1 and not parts[-1].strip():
            parts.pop()
        return cls(tuple(map(_parse_span, parts)))

    def indexes(self, page_count: int) -> list[int]:
        """Returns page indexes counted from 0, each once. Raises InvalidOption for a page beyond `page_count`."""
        if not self.spans:
            return list(range(page_count))
        last = max(last for _, last in self.spans)
        if last > page_count:
            message = f"The file has no page {last}; its last page is {page_count}."
            raise invalid_pages(message, {"page": last, "page_count": page_count})
        numbers = chain.from_iterable(range(first - 1, last) for first, last in self.spans)
        return list(dict.fromkeys(numbers))


def invalid_pages(message: str, details: Mapping[str, Any], reason: str = "out_of_range") -> InvalidOption:
    """Returns the error for the option `pages`."""
    return InvalidOption(message, reason=reason, param="pages", details=details)


def _parse_span(text: str) -> tuple[int, int]:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise invalid_pages("pages must be numbers from 1, such as 2,5,8 or 3-5.", {"value": text[:40]}, "malformed")
    first = int(match[1])
    last = int(match[2] or match[1])
    if not 0 < first <= last:
        raise invalid_pages("pages must be numbers from 1, ranges from low to high.", {"value": text[:40]})
    return first, last
