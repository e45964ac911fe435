"""The structure of documents that are laid out on pages, and of the text that scans show, by Tesseract."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import BLOCKS, DOCUMENT, AnyConversion, Blocks, Loss, conversion, hookimpl, lazy_imports
from plugins.tools import pdf_ocr

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.text import layout, text_layer

MODULES = (
    "plugins._pdf.text.layout",
    "plugins._pdf.text.text_layer",
    "encodings.raw_unicode_escape",
)
TEMPLATE = "documents"

Ocr: TypeAlias = Annotated[bool, Field(description="Recognizes the text of pages that have none.")]

_COST = 4
_COST_OF_OCR = 20


@conversion(DOCUMENT, BLOCKS, loss=Loss.STRUCTURE, cost=_COST)
def read(document: pymupdf.Document) -> Blocks:
    """Headings, paragraphs, lists, tables, links and pictures, without headers and footers that pages repeat."""
    return layout.read(document)


@conversion(DOCUMENT, BLOCKS, loss=Loss.STRUCTURE, cost=_COST_OF_OCR, programs=pdf_ocr.PROGRAMS, isolated=True)
def read_scans(document: pymupdf.Document, *, ocr: Ocr = False, language: pdf_ocr.Language | None = None) -> Blocks:
    """As `read`, with the text of pages that have none."""
    if not ocr:
        return layout.read(document)
    return layout.read(document, partial(text_layer.recognized, commands=pdf_ocr.commands(language)))


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read, *([read_scans] if pdf_ocr.TESSERACT.present else [])]
