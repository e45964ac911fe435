"""Losses when a page becomes images or vectors: attachments, links, form fields and encryption."""

from __future__ import annotations

from engine import FidelityWarning
from engine.mupdf import pymupdf


def warn_losses(page: pymupdf.Page) -> None:
    """Issues a warning for each kind of content of the page or its document that the result cannot hold."""
    document = page.parent
    if document.embfile_count() or next(page.annots(types=[pymupdf.PDF_ANNOT_FILE_ATTACHMENT]), None):
        FidelityWarning.issue("attachments_dropped", "Files that are attached to the PDF are not in the result.")
    if page.first_link:
        FidelityWarning.issue("links_dropped", "Links of the PDF are not in the result.")
    if page.first_widget:
        FidelityWarning.issue("forms_dropped", "Form fields are drawn as they are, and cannot be filled in.")
    if document.metadata["encryption"]:  # needs_pass would lock it again
        FidelityWarning.issue("encryption_dropped", "The PDF is encrypted; the result is not.")
