"""The structure of documents that are laid out on pages."""

from __future__ import annotations

from engine import BLOCKS, DOCUMENT, Blocks, Loss, conversion, lazy_imports

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.text import layout

MODULES = ("plugins._pdf.text.layout", "encodings.raw_unicode_escape")
TEMPLATE = "documents"


@conversion(DOCUMENT, BLOCKS, loss=Loss.STRUCTURE, cost=4)
def read(document: pymupdf.Document) -> Blocks:
    """Headings, paragraphs, lists, tables, links and pictures, without headers and footers that pages repeat."""
    return layout.read(document)
