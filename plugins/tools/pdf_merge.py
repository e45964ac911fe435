"""Merges PDFs by editing PDF objects, without rendering."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import InputNames, TooLarge, lazy_imports, tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf.pages import merge as merging

MODULES = (*pdf_objects.MODULES, "plugins._pdf.pages.merge")
TEMPLATE = "documents"

_MAX_MERGED_PAGES = 10_000  # adding a page takes time in proportion to the pages before it
Outline = Annotated[bool, Field(description="Adds an outline entry for each file, above the entries of the file.")]


@tool(
    "pdf-merge",
    OBJECTS,
    title="Merge PDFs",
    words="combine join append put together",
    sources=(PDF,),
    count=page_count,
    inputs=range(2, 21),
    output_name="merged",
)
def merge(documents: list[pikepdf.Pdf], *, outline: Outline = False, names: InputNames = ()) -> pikepdf.Pdf:
    """Merges PDFs in the given order, with their outlines, links, forms, page labels and attachments."""
    pages = sum(map(page_count, documents))
    if pages > _MAX_MERGED_PAGES:
        message = f"The files have {pages} pages in total; the limit is {_MAX_MERGED_PAGES}."
        raise TooLarge(message, reason="pages", details={"max_pages": _MAX_MERGED_PAGES, "pages": pages})
    if outline:
        for number, document in enumerate(documents):
            merging.put_below_item(document, names[number] if names else str(number + 1))
    return merging.merged(documents)
