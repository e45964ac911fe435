"""PDF as objects, which tools change without drawing pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import Format, conversion
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

if TYPE_CHECKING:
    import pikepdf

OBJECTS: Format[pikepdf.Pdf] = Format("pdf objects", "pikepdf._core.Pdf", lazy=True)

MODULES = ("plugins._pdf.documents",)
TEMPLATE = "documents"
_COST = 2  # more than MuPDF's: without a tool, MuPDF is preferred, because it repairs more damaged files


def page_count(document: pikepdf.Pdf) -> int:
    """The number of pages of a document."""
    return len(document.pages)


@conversion(PDF, OBJECTS, cost=_COST, isolated=True)
def read(data: bytes, *, password: Password | None = None) -> pikepdf.Pdf:
    from plugins._pdf.documents import open_document

    return open_document(data, password)


@conversion(OBJECTS, PDF, cost=_COST)
def write(document: pikepdf.Pdf, *, sanitize: Sanitize = False) -> bytes:
    from plugins._pdf.documents import save_document

    return save_document(document, sanitize=sanitize)
