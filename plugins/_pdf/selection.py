"""Selects pages of a PDF, with the parts of the document that refer to them: outline, links, forms, attachments."""

from __future__ import annotations

from io import BytesIO

import pikepdf

from engine import FidelityWarning
from plugins._pdf.delete_pages import remove_pages

# Entries of a document that MuPDF would drop with the first page, and not only the parts that refer to it.
_REFERRING = {"/Outlines", "/Names", "/Dests", "/PageLabels", "/AcroForm", "/StructTreeRoot", "/Threads"}


def with_distinct_pages(data: bytes, password: str) -> bytes:
    """The document with an object for each page, without encryption. A page can be in it several times."""
    with pikepdf.open(BytesIO(data), password=password) as document:
        len(document.pages)  # replaces repeated pages by copies
        file = BytesIO()
        document.save(file, encryption=False)
    return file.getvalue()


def select_pages(data: bytes, password: str, indices: list[int]) -> bytes | None:
    """The document with the pages at `indices`, which count from 0, in their order.

    None if no other part of the document refers to pages, or if it is damaged. Issues a warning for links to other
    pages.
    """
    try:
        with pikepdf.open(BytesIO(data), password=password) as document:
            if not _REFERRING & set(document.Root.keys()):
                return None
            removed = sorted(set(range(len(document.pages))).difference(indices))
            links = remove_pages(document, removed) if removed else 0
            file = BytesIO()
            document.save(file, encryption=document.is_encrypted)
    except (pikepdf.PdfError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    if links:
        FidelityWarning.issue("links_dropped", "Links to pages that were not selected were removed.")
    return file.getvalue()
