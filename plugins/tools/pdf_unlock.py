"""Removes the encryption of a PDF."""

from __future__ import annotations

from engine import EncodedFile, lazy_imports, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf import documents

MODULES = ("plugins._pdf.documents",)
TEMPLATE = "documents"


@tool(
    "pdf-unlock",
    PDF,
    title="Unlock a PDF",
    words="remove password decrypt",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def unlock(data: bytes, *, password: Password | None = None, sanitize: Sanitize = False) -> EncodedFile:
    """Removes the passwords and restrictions of a PDF, one of whose passwords is needed unless it opens without."""
    document = documents.open_document(data, password)
    was_encrypted = document.is_encrypted
    result = documents.save_document(document, sanitize=sanitize, encryption=False)
    if not (was_encrypted or sanitize):
        result = documents.keep_original(data, result, "it is not encrypted")
    return EncodedFile(result, pages=len(document.pages), secrets={})
