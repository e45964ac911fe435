"""Turns pages of a PDF."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine import PageRanges, lazy_imports, tool
from engine.option_types import Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, form_fields

MODULES = (*pdf_objects.MODULES, "plugins._pdf.form_fields")
TEMPLATE = "documents"

Angle = Annotated[Literal[90, 180, 270], Field(description="Degrees clockwise, added to the rotation of each page.")]


@tool("pdf-rotate", OBJECTS, title="Rotate PDF pages", words="turn pages", sources=(PDF,), count=page_count)
def rotate(document: pikepdf.Pdf, *, angle: Angle, pages: Pages = "all") -> pikepdf.Pdf:
    """Turns pages of a PDF by 90, 180 or 270 degrees; their content stays as it is."""
    indexes = PageRanges.parse(pages).indexes(page_count(document))
    form_fields.remove_signatures(document)
    for page in documents.selected(document, indexes):
        page.rotate(angle, relative=True)
    return document
