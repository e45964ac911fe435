"""Pages in an order of their own, which can be repeated: `3,1,1,5-`."""

import re

from engine import InvalidOption

_SPAN = re.compile(r"\s*([0-9]{1,9})\s*(?:(-)\s*([0-9]{1,9})?\s*)?")
_MAX_PAGES = 10_000  # adding a page takes time in proportion to the pages before it


def read_order(items: list[str], count: int | None = None) -> list[int]:
    """The pages, counted from 0, that items such as `3`, `4-6` or `5-` name in a file of `count` pages.

    Without `count`, only the form is checked. Raises InvalidOption, param `pages`.
    """
    numbers: list[int] = []
    for item in items:
        match = _SPAN.fullmatch(item)
        if match is None and item.strip() != "all":
            raise _invalid("pages must be numbers from 1, such as 3,1,1,5-.", reason="malformed", value=item[:40])
        first = int(match[1]) if match else 1
        last = first if match and not match[2] else int(match[3]) if match and match[3] else count or first
        if not 0 < first <= last:
            raise _invalid("pages must be numbers from 1, ranges from low to high.", value=item[:40])
        if count is not None and last > count:
            raise _invalid(f"The file has no page {last}; its last page is {count}.", page=last, page_count=count)
        if len(numbers) + last - first >= _MAX_PAGES and count is not None:
            raise _invalid(f"pages must name at most {_MAX_PAGES} pages.", max=_MAX_PAGES)
        numbers += range(first - 1, last) if count is not None else ()
    return numbers


def _invalid(message: str, *, reason: str = "out_of_range", **details: str | int) -> InvalidOption:
    return InvalidOption(message, reason=reason, param="pages", details=details)
