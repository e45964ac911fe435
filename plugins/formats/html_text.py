"""The text of documents as HTML."""

from __future__ import annotations

from engine import DOCUMENT, Loss, conversion, lazy_imports
from plugins.formats.html import HTML

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.text import texts

MODULES = ("plugins._pdf.text.texts", "encodings.raw_unicode_escape")
TEMPLATE = "documents"


@conversion(DOCUMENT, HTML, loss=Loss.STRUCTURE, cost=3, terminal=True)
def to_html(document: pymupdf.Document) -> bytes:
    """A section for each page, with its headings, paragraphs and links in reading order."""
    pages = [texts.blocks_of(page, texts.stored_blocks) for page in document]
    return texts.html_document((document.metadata or {}).get("title") or "", pages).encode()
