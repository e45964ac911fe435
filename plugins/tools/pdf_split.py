"""Splits a PDF into several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from engine import ConversionError, EncodedFile, InvalidOption, PageRanges, ToolResult, lazy_imports, split_list, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf import documents, form_fields
    from plugins._pdf.pages import parts

MODULES = ("plugins._pdf.documents", "plugins._pdf.pages.parts")
TEMPLATE = "documents"


def _groups(text: str) -> list[PageRanges]:
    """The groups of pages: separated by semicolons, or an array in JSON with a group as each item."""
    groups = split_list(text) if text.strip().startswith("[") else text.rstrip("; ").split(";")
    return [PageRanges.parse(group) for group in groups]


def _check_groups(text: str) -> str:
    _groups(text)
    return text


Every = Annotated[int, Field(ge=1, examples=[10], description="Pages of each file.")]
PageGroups = Annotated[
    str,
    Field(max_length=10_000, examples=["1-3;4-9"], description="The pages of each file, separated by semicolons."),
    AfterValidator(_check_groups),
]
Bookmarks = Annotated[bool, Field(description="A file for each bookmark of the first level.")]
MaxSize = Annotated[int, Field(ge=1000, examples=[1_000_000], description="Size limit of each file in bytes.")]


@tool(
    "pdf-split",
    PDF,
    title="Split a PDF",
    words="separate divide cut into parts",
    sources=(PDF,),
    isolated=True,
    encodes=True,
    archive=True,
    example=("every",),
)
def split(
    data: bytes,
    *,
    every: Every | None = None,
    pages: PageGroups | None = None,
    bookmarks: Bookmarks = False,
    max_bytes: MaxSize | None = None,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> ToolResult[bytes]:
    """Splits a PDF into several: by number of pages, groups, bookmarks or size; attached files go to the first."""
    given = [every is not None, pages is not None, bookmarks, max_bytes is not None].count(True)
    if given != 1:
        message = "Exactly one of every, pages, bookmarks and max_bytes must be given."
        raise InvalidOption(message, reason="exclusive" if given else "missing", param="every")
    divider, save = _divide(data, password, sanitize=sanitize)
    count = len(divider.pages)
    if max_bytes is not None:
        files = _split_by_size(save, count, max_bytes, len(data))
    else:
        parts: list[tuple[str, list[int]]]
        if every is not None:
            parts = [("", [*range(first, min(first + every, count))]) for first in range(0, count, every)]
        elif pages is not None:
            parts = [("", group.order(count)) for group in _groups(pages)]
        else:
            parts = _chapters(divider.outline.chapters, count)
        digits = max(2, len(str(len(parts))))
        files = (
            (
                f"{place + 1:0{digits}}{title and '-'}{title}",
                save(numbers, is_first=place == 0),
            )
            for place, (title, numbers) in enumerate(parts)
        )
    return ToolResult(files=files, facts={"original_page_count": count})


def _divide(data: bytes, password: str | None, *, sanitize: bool) -> tuple[parts.Divider, Callable[..., EncodedFile]]:
    """The document, and a function that makes a file with some pages of it."""
    document = documents.open_document(data, password)
    new_part = documents.blank_documents(document, data, password)
    form_fields.remove_signatures(document)
    divider = parts.Divider(document)

    def save(numbers: Sequence[int], *, is_first: bool) -> EncodedFile:
        """A file with these pages. The first one also has what belongs to no page, such as attached files."""
        part = new_part()
        divider.fill(part, numbers, with_attachments=is_first)
        return EncodedFile(documents.save_document(part, sanitize=sanitize), pages=len(numbers))

    return divider, save


def _chapters(titles: dict[int, str], count: int) -> list[tuple[str, list[int]]]:
    """The title and the pages of each chapter. Pages before the first one have no title."""
    if not titles:
        message = "The PDF has no bookmark that leads to a page."
        raise InvalidOption(message, reason="nothing_found", param="bookmarks")
    starts = sorted({0, *titles})
    ends = [*starts[1:], count]
    return [(titles.get(first, ""), [*range(first, end)]) for first, end in zip(starts, ends, strict=True)]


def _split_by_size(
    save: Callable[..., EncodedFile], count: int, limit: int, size: int
) -> Iterator[tuple[str, EncodedFile]]:
    """Files of at most `limit` bytes, each with as many pages as fit. `size` is the size of the whole document."""
    first = 0
    place = 1
    length = max(1, count * limit // size)
    while first < count:
        file: EncodedFile | None = None
        issued: list[warnings.WarningMessage] = []
        fitting = 0
        too_many = count - first + 1
        while too_many - fitting > 1:
            length = min(max(length, fitting + 1), too_many - 1)
            # A part that is too large is split again, so its warnings do not count.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                made = save(range(first, first + length), is_first=first == 0)
            if len(made.data) <= limit:
                file = made
                fitting = length
                issued = caught
                length *= 2
            else:
                too_many = length
                smallest = len(made.data)
                length = (fitting + too_many) // 2
        if file is None:
            raise ConversionError(
                f"Page {first + 1} alone has {smallest} bytes.",
                reason="target_unreachable",
                param="max_bytes",
                details={"max_bytes": limit, "smallest": smallest},
            )
        for one in issued:
            warnings.warn(one.message, stacklevel=1)
        yield f"{place:03}", file
        first = first + fitting
        place = place + 1
        length = fitting
