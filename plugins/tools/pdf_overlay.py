"""Draws the pages of another PDF on the pages of a PDF."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import ConversionError, FidelityWarning, InputFile, lazy_imports, tool
from engine.option_types import Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, documents, form_fields
    from plugins._pdf.pages import marks

MODULES = (*pdf_objects.MODULES, "encodings.cp1252", "plugins._pdf.form_fields", "plugins._pdf.pages.marks")
TEMPLATE = "documents"

Overlay = Annotated[
    bytes,
    InputFile(
        PDF,
        "A PDF or an image. A single page is drawn on each page, several ones page by page.",
        example="letterhead.pdf",
    ),
]
Under = Annotated[bool, Field(description="Draws below the content of the pages, such as letter paper.")]


@tool(
    "pdf-overlay",
    OBJECTS,
    title="Lay a PDF over another one",
    words="letterhead background stationery",
    sources=(PDF,),
    count=page_count,
)
def lay_over(document: pikepdf.Pdf, *, overlay: Overlay, under: Under = False, pages: Pages = "all") -> pikepdf.Pdf:
    """Draws pages of another PDF in the middle of the pages, smaller only where they are larger than the page."""
    chosen = documents.selected(document, pages)
    archive_claims.remove_claim(document)  # The colors and fonts of the other file may be others than PDF/A permits.
    drawn = _marks(document, overlay, len(chosen))
    writer = marks.MarkWriter(document)
    for (_, page), mark in zip(chosen, drawn * len(chosen) if len(drawn) == 1 else drawn, strict=False):
        geometry = marks.Geometry.of(page)
        shown = mark.scaled(min(1, geometry.width / mark.width, geometry.height / mark.height))
        writer.draw(page, shown, [geometry.place(shown, "center")], under=under)
    return document


def _marks(document: pikepdf.Pdf, overlay: bytes, count: int) -> list[marks.Mark]:
    """The first `count` pages of a PDF. Issues a warning for more, and for links. Raises ConversionError."""
    writer = marks.MarkWriter(document)
    try:
        source = documents.open_document(overlay, None)
    except ConversionError as error:
        error.param = "overlay"
        raise
    if len(source.pages) > max(count, 1):
        FidelityWarning.issue("pages_dropped", f"Only {count} pages of the overlay are drawn.")
    drawn = form_fields.with_drawn_annotations(source, set(range(count)), "")
    found = list(drawn.pages)[:count]
    if any("/Annots" in page.obj for page in found):
        FidelityWarning.issue("links_dropped", "Links of the overlay are not in the result.")
    return [writer.page_of(page) for page in found]
