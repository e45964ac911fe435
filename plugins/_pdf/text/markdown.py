"""Markdown of documents by PyMuPDF4LLM, without its neural networks, which take 250 MB and start threads."""

import sys
from types import SimpleNamespace
from typing import Any

from engine.mupdf import pymupdf
from plugins._pdf.text import texts

_REPLACED = {"pymupdf.layout": None, "onnxruntime": SimpleNamespace(InferenceSession=object)}

sys.modules.update(_REPLACED)  # type: ignore[arg-type]
import pymupdf4llm  # noqa: E402
from pymupdf4llm.helpers import pymupdf_rag  # noqa: E402

for _name in _REPLACED:
    del sys.modules[_name]

_found_boxes = pymupdf_rag.column_boxes


def _column_boxes(page: pymupdf.Page, *, textpage: pymupdf.TextPage, **options: Any) -> list[pymupdf.Rect]:
    """The boxes of text that PyMuPDF4LLM finds, in their order; one that holds columns is divided into paragraphs."""
    paragraphs = texts.in_reading_order(texts.plain_blocks(page, textpage))
    boxes = []
    for box in _found_boxes(page, textpage=textpage, **options):
        inside = [one for one in paragraphs if one.box in box]
        boxes += [pymupdf.Rect(one.box) for one in inside] if texts.have_columns(inside) else [box]
    return boxes


pymupdf_rag.column_boxes = _column_boxes


def to_markdown(document: pymupdf.Document) -> str:
    """The text with headings, lists, tables and links."""
    text: str = pymupdf4llm.to_markdown(document, ignore_images=True, show_progress=False)
    return text or "\n"
