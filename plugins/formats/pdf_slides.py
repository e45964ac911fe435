"""PPTX of documents that are laid out on pages."""

from __future__ import annotations

from engine import DOCUMENT, Loss, conversion, lazy_imports
from plugins.formats.office import PPTX

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.text import slides

MODULES = ("plugins._pdf.text.slides", "encodings.cp437", "encodings.raw_unicode_escape")
TEMPLATE = "documents"


@conversion(DOCUMENT, PPTX, loss=Loss.STRUCTURE, cost=6, terminal=True)
def write(document: pymupdf.Document) -> bytes:
    """A slide for each page, with text boxes, pictures and filled rectangles at their places."""
    return slides.write(document)
