"""The text of documents, as text and as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import DOCUMENT, FileFormat, Loss, Signature, conversion

if TYPE_CHECKING:
    import pymupdf

MODULES = ("plugins._pdf.losses", "plugins._pdf.texts")

TXT = FileFormat(
    "txt",
    media_type="text/plain",
    extensions=("txt",),
    sniff=lambda _content: 0,  # nothing marks a text, and no step reads one
    paged=True,
)
HTML = FileFormat(
    "html",
    media_type="text/html",
    extensions=("html", "htm"),
    sniff=Signature((0, b"<!DOCTYPE html>")),
    paged=True,
)


@conversion(DOCUMENT, TXT, loss=Loss.STRUCTURE, cost=3, terminal=True)
def to_text(document: pymupdf.Document) -> bytes:
    """The text of the pages in reading order, in UTF-8: form feeds separate pages, empty lines paragraphs."""
    from plugins._pdf.losses import warn_losses
    from plugins._pdf.texts import blocks_of, warn_pictures

    pages = []
    for page in document:
        warn_losses(page)
        warn_pictures(page)
        pages.append("\n\n".join(block.text for block in blocks_of(page)))
    return "\n\f".join(f"{page}\n" if page else "" for page in pages).encode() or b"\n"


@conversion(DOCUMENT, HTML, loss=Loss.STRUCTURE, cost=3, terminal=True)
def to_html(document: pymupdf.Document) -> bytes:
    """A section for each page, with its headings, paragraphs and links in reading order."""
    from plugins._pdf.texts import blocks_of, html_document, warn_pictures

    pages = []
    for page in document:
        warn_pictures(page)
        pages.append(blocks_of(page))
    return html_document((document.metadata or {}).get("title") or "", pages).encode()
