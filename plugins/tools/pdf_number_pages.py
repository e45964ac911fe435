"""Writes page numbers on the pages of a PDF."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import lazy_imports, tool
from engine.option_types import Pages, Position
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, documents
    from plugins._pdf.pages import marks

MODULES = (*pdf_objects.MODULES, "encodings.cp1252", "plugins._pdf.pages.marks")
TEMPLATE = "documents"

Template = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        examples=["{page} / {pages}"],
        description="The text, in which {page} is the number of the page and {pages} the number of all.",
    ),
]
Start = Annotated[int, Field(ge=0, le=1_000_000, description="The number of the first page of the file.")]
FontSize = Annotated[float, Field(ge=1, le=200, description="Size of the font in points.")]


@tool(
    "pdf-number-pages", OBJECTS, title="Number PDF pages", words="page numbers bates", sources=(PDF,), count=page_count
)
def number_pages(
    document: pikepdf.Pdf,
    *,
    format: Template = "{page} / {pages}",
    position: Position = "south",
    start: Start = 1,
    pages: Pages = "all",
    size: FontSize = 10,
) -> pikepdf.Pdf:
    """Writes its number on each page of a PDF."""
    chosen = documents.selected(document, pages)
    archive_claims.remove_claim(document)  # The colors and fonts of marks may be others than PDF/A permits.
    writer = marks.MarkWriter(document)
    for index, page in chosen:
        text = format.replace("{pages}", str(page_count(document))).replace("{page}", str(index + start))
        mark = writer.text(text, size)
        writer.draw(page, mark, [marks.Geometry.of(page).place(mark, position)])
    return document
