"""Turns pages of a PDF."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine import lazy_imports, tool
from engine.option_types import Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents

MODULES = pdf_objects.MODULES
TEMPLATE = "documents"

Angle = Annotated[Literal[90, 180, 270], Field(description="Degrees clockwise, added to the rotation of each page.")]


@tool("pdf-rotate", OBJECTS, title="Rotate PDF pages", words="turn pages", sources=(PDF,), count=page_count)
def rotate(document: pikepdf.Pdf, *, angle: Angle, pages: Pages = "all") -> pikepdf.Pdf:
    """Turns pages of a PDF by 90, 180 or 270 degrees; their content stays as it is."""
    for _, page in documents.selected(document, pages):
        page.rotate(angle, relative=True)
    return document
