"""Draws the form fields and annotations of a PDF into its pages."""

from __future__ import annotations

from engine import EncodedFile, PageRanges, lazy_imports, tool
from engine.option_types import Pages, Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf import documents, form_fields

MODULES = ("plugins._pdf.documents", "plugins._pdf.form_fields")
TEMPLATE = "documents"


@tool(
    "pdf-flatten",
    PDF,
    title="Flatten a PDF",
    words="form fields annotations read-only",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def flatten(
    data: bytes, *, pages: Pages = "all", password: Password | None = None, sanitize: Sanitize = False
) -> EncodedFile:
    """Makes form fields and annotations of a PDF part of its pages, so that they cannot be changed; links stay."""
    document = documents.open_document(data, password)
    count = len(document.pages)
    indexes = PageRanges.parse(pages).indexes(count)
    form_fields.remove_signatures(document)
    form_fields.remove_xfa(document)
    flat = form_fields.flatten_pages(document, set(indexes), password or "")
    return EncodedFile(documents.save_document(flat, sanitize=sanitize), pages=count)
