"""PDF as objects, which tools change without drawing pages."""

from __future__ import annotations

from engine import Format, conversion, lazy_imports
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents

OBJECTS: Format[pikepdf.Pdf] = Format("pdf objects", "pikepdf._core.Pdf", lazy=True)

MODULES = ("plugins._pdf.documents",)
TEMPLATE = "documents"
_COST = 2  # more than MuPDF's: without a tool, MuPDF is preferred, because it repairs more damaged files


def page_count(document: pikepdf.Pdf) -> int:
    """The number of pages of a document."""
    return len(document.pages)


@conversion(PDF, OBJECTS, cost=_COST, isolated=True)
def read(data: bytes, *, password: Password | None = None) -> pikepdf.Pdf:
    return documents.open_document(data, password)


@conversion(OBJECTS, PDF, cost=_COST)
def write(document: pikepdf.Pdf, *, sanitize: Sanitize = False) -> bytes:
    return documents.save_document(document, sanitize=sanitize)
