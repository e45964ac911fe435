"""The text of documents as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import DOCUMENT, Loss, conversion
from plugins.formats.html import HTML

if TYPE_CHECKING:
    import pymupdf

MODULES = ("plugins._pdf.losses", "plugins._pdf.text.texts", "encodings.raw_unicode_escape")
TEMPLATE = "documents"


@conversion(DOCUMENT, HTML, loss=Loss.STRUCTURE, cost=3, terminal=True)
def to_html(document: pymupdf.Document) -> bytes:
    """A section for each page, with its headings, paragraphs and links in reading order."""
    from plugins._pdf.text.texts import blocks_of, html_document, warn_images

    pages = []
    for page in document:
        warn_images(page)
        pages.append(blocks_of(page))
    return html_document((document.metadata or {}).get("title") or "", pages).encode()
