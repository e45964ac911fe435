"""Makes PDF files for archives: those of clients, and results of conversions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from engine import EncodedFile, Inherited, lazy_imports, tool, transform
from engine.option_types import InputPassword, Password, PdfStandard, Sanitize
from plugins.formats.pdf import PDF
from plugins.tools import pdf_protect

with lazy_imports():
    from plugins._pdf import accessibility, archiving, documents, objects

MODULES = ("plugins._pdf.documents", "plugins._pdf.archiving", "plugins._pdf.accessibility")
TEMPLATE = "documents"

Standard: TypeAlias = Annotated[
    Literal["pdfa-2b", "pdfa-3b"],
    Field(description="PDF/A-2b, which permits no attached files, or PDF/A-3b, which permits any."),
]


@tool(
    "pdf-archive",
    PDF,
    title="PDF for archives (PDF/A)",
    words="pdfa long-term preserve standard",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def archive(
    data: bytes, *, standard: Standard = "pdfa-2b", password: Password | None = None, sanitize: Sanitize = False
) -> EncodedFile:
    """Makes a PDF that will look the same in the future: PDF/A, which is validated, or refused if it cannot be it."""
    document = documents.open_document(data, password)
    pages = len(document.pages)
    return EncodedFile(archiving.archived(document, standard, "standard", sanitize=sanitize), pages=pages)


@transform(PDF, after=pdf_protect.encrypt)
def conform(
    data: bytes,
    *,
    pdf_standard: PdfStandard = "none",
    password: InputPassword | None = None,
    sanitize: Annotated[Sanitize, Inherited()] = False,
) -> bytes:
    """Makes the result of a conversion conform to a standard."""
    with objects.open_pdf(data, password or "") as document:
        if pdf_standard == "pdfua-1":
            return accessibility.accessible(document, "pdf_standard")
        return archiving.archived(document, pdf_standard, "pdf_standard", sanitize=sanitize)
