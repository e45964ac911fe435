"""Selects pages of a PDF, with the parts of the document that refer to them: outline, links, forms, attachments."""

from __future__ import annotations

from io import BytesIO

import pikepdf

from plugins._pdf.objects import open_pdf
from plugins._pdf.pages.parts import keep_pages


def with_distinct_pages(data: bytes, password: str) -> bytes:
    """The document with an object for each page, without encryption. A page can be in it several times."""
    with open_pdf(data, password) as document:
        len(document.pages)  # replaces repeated pages by copies
        file = BytesIO()
        document.save(file, encryption=False)
    return file.getvalue()


def select_pages(data: bytes, password: str, indices: list[int]) -> bytes | None:
    """The document with the pages at `indices`, which count from 0, in this order.

    None if it is damaged. Issues a warning for links to other pages, and for an XFA form.
    """
    try:
        with open_pdf(data, password) as document:
            keep_pages(document, indices)
            file = BytesIO()
            document.save(file, encryption=document.is_encrypted)
    except (pikepdf.PdfError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return file.getvalue()
