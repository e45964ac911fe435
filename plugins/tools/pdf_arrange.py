"""Makes a PDF of pages of several files in any order."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from engine import RASTER, ConversionError, EncodedFile, InvalidOption, lazy_imports, tool
from engine.option_types import Password, Sanitize
from plugins._text.paper import POINTS, SIZES
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents
    from plugins._pdf.pages import merge, parts

MODULES = ("plugins._pdf.documents", "plugins._pdf.pages.merge", "plugins._pdf.pages.parts")
TEMPLATE = "documents"

_MAX_PAGES = 10_000  # adding a page takes time in proportion to the pages before it
Turn = Literal[0, 90, 180, 270]


class PageEntry(TypedDict):
    """A page of a file, which count from 0 and 1, or an empty one of a size of paper; turned clockwise."""

    file: NotRequired[Annotated[int, Field(ge=0)]]
    page: NotRequired[Annotated[int, Field(ge=1)]]
    rotate: NotRequired[Literal[0, 90, 180, 270]]
    blank: NotRequired[Literal["a3", "a4", "a5", "a6", "letter", "legal", "tabloid"]]


def _check_entries(entries: list[PageEntry]) -> list[PageEntry]:
    if any(("file" in entry) == ("blank" in entry) or {"page", "blank"} <= entry.keys() for entry in entries):
        raise ValueError("must have file, with or without page, or blank in each entry.")
    return entries


PageList = Annotated[
    list[PageEntry],
    Field(
        min_length=1,
        max_length=_MAX_PAGES,
        examples=[[{"file": 0, "page": 3, "rotate": 90}, {"blank": "a4"}]],
        description="The pages of the result in their order: `file` counts from 0, `page` from 1 (the default), "
        "`rotate` is 90, 180 or 270 degrees clockwise, `blank` an empty page of a size of paper.",
    ),
    AfterValidator(_check_entries),
]


@tool(
    "pdf-arrange",
    PDF,
    title="Organize pages",
    words="organize reorder sort pages combine images delete rotate duplicate insert blank",
    sources=(PDF,),
    decoded_to=RASTER,
    isolated=True,
    encodes=True,
    inputs=range(1, 21),
    output_name="arranged",
    opens_with={"metadata": "all", "pages": "all"},  # keeps JPEG files as they are; its own pages are others
)
def arrange(
    files: list[bytes], *, pages: PageList, password: Password | None = None, sanitize: Sanitize = False
) -> EncodedFile:
    """Makes a PDF of pages of PDFs and images, in any order, turned, repeated, and with blank pages between them."""
    opened = [_open(data, password, index) for index, data in enumerate(files)]
    counts = [len(document.pages) for document in opened]
    for entry in pages:
        _check_page(entry, counts)
    used = sorted({entry["file"] for entry in pages if "file" in entry}) or [0]
    starts = {file: sum(counts[other] for other in used if other < file) for file in used}
    arranged = merge.merged([opened[file] for file in used])
    numbers = []
    for entry in pages:
        if "file" in entry:
            numbers.append(starts[entry["file"]] + entry.get("page", 1) - 1)
        else:
            numbers.append(len(arranged.pages))
            width, height = (side * POINTS for side in SIZES[entry["blank"]])
            del arranged.add_blank_page(page_size=(width, height)).obj.Contents
    parts.keep_pages(arranged, numbers)
    for page, entry in zip(arranged.pages, pages, strict=True):
        if entry.get("rotate"):
            page.rotate(entry["rotate"], relative=True)
    return EncodedFile(documents.save_document(arranged, sanitize=sanitize), pages=len(numbers))


def _open(data: bytes, password: str | None, index: int) -> pikepdf.Pdf:
    """Opens a file; errors have its index."""
    try:
        return documents.open_document(data, password)
    except ConversionError as error:
        error.details["index"] = index
        raise


def _check_page(entry: PageEntry, counts: list[int]) -> None:
    """Raises InvalidOption for a file or page that does not exist."""
    file, page = entry.get("file", 0), entry.get("page", 1)
    if file >= len(counts):
        message = f"There is no file {file}; the last of the {len(counts)} files is {len(counts) - 1}."
        raise InvalidOption(message, reason="out_of_range", param="pages", details={"file_count": len(counts)})
    if page > counts[file]:
        message = f"File {file} has no page {page}; its last page is {counts[file]}."
        details = {"page": page, "page_count": counts[file]}
        raise InvalidOption(message, reason="out_of_range", param="pages", details=details)
