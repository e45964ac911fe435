"""Selects pages of a PDF, with the parts of the document that refer to them: outline, links, forms, attachments."""

from __future__ import annotations

from io import BytesIO

import pikepdf

from engine import FidelityWarning
from plugins._pdf.delete_pages import remove_pages
from plugins._pdf.form_fields import remove_xfa
from plugins._pdf.name_trees import page_labels, set_page_labels
from plugins._pdf.objects import open_pdf


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
            removed = sorted(set(range(len(document.pages))).difference(indices))
            remove_xfa(document)
            links = remove_pages(document, removed)
            if indices != sorted(indices):
                _reorder(document, [sorted(indices).index(index) for index in indices])
            file = BytesIO()
            document.save(file, encryption=document.is_encrypted)
    except (pikepdf.PdfError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    if links:
        FidelityWarning.issue("links_dropped", "Links to pages that were not selected were removed.")
    return file.getvalue()


def _reorder(document: pikepdf.Pdf, order: list[int]) -> None:
    """Puts the pages, and their labels, into another order. What refers to pages still does."""
    pages = list(document.pages)
    labels = page_labels(document.Root, len(pages)) if "/PageLabels" in document.Root else None
    del document.pages[:]
    document.pages.extend(pages[index] for index in order)
    if labels is not None:
        set_page_labels(document, [labels[index] for index in order])
