"""Draws the form fields and annotations of a PDF into its pages."""

from __future__ import annotations

from engine import EncodedFile, PageRanges, tool
from engine.option_types import Pages, Password, Sanitize
from plugins.formats.pdf import PDF

MODULES = ("plugins._pdf.documents", "plugins._pdf.pages.flattening", "plugins._pdf.form_fields")
TEMPLATE = "documents"


@tool("pdf-flatten", PDF, title="Flatten a PDF", sources=(PDF,), isolated=True, encodes=True)
def flatten(
    data: bytes, *, pages: Pages = "all", password: Password | None = None, sanitize: Sanitize = False
) -> EncodedFile:
    """Makes form fields and annotations of a PDF part of its pages, so that they cannot be changed; links stay."""
    from plugins._pdf.documents import open_document, save_document
    from plugins._pdf.form_fields import remove_signatures, remove_xfa
    from plugins._pdf.pages.flattening import flatten_pages

    document = open_document(data, password)
    count = len(document.pages)
    indexes = PageRanges.parse(pages).indexes(count)
    remove_signatures(document)
    remove_xfa(document)
    flat = flatten_pages(document, set(indexes), password or "")
    return EncodedFile(save_document(flat, sanitize=sanitize), pages=count)
