"""Markdown of documents by PyMuPDF4LLM, without its neural network, which takes 250 MB."""

import sys

from engine.mupdf import pymupdf

_HIDDEN = "pymupdf.layout"

sys.modules[_HIDDEN] = None  # type: ignore[assignment]
import pymupdf4llm  # noqa: E402

del sys.modules[_HIDDEN]


def to_markdown(document: pymupdf.Document) -> str:
    """The text with headings, lists, tables and links."""
    text: str = pymupdf4llm.to_markdown(document, ignore_images=True, show_progress=False)
    return text or "\n"
