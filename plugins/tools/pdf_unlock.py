"""Removes the encryption of a PDF."""

from __future__ import annotations

from engine import EncodedFile, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

MODULES = ("plugins._pdf.documents", "plugins._pdf.form_fields")
TEMPLATE = "documents"


@tool("pdf-unlock", PDF, title="Unlock a PDF", sources=(PDF,), isolated=True, encodes=True)
def unlock(data: bytes, *, password: Password | None = None, sanitize: Sanitize = False) -> EncodedFile:
    """Removes the passwords and restrictions of a PDF, one of whose passwords is needed unless it opens without."""
    from plugins._pdf.documents import keep_original, open_document, save_document
    from plugins._pdf.form_fields import remove_signatures

    document = open_document(data, password)
    was_encrypted = document.is_encrypted
    if was_encrypted:
        remove_signatures(document)
    result = save_document(document, sanitize=sanitize, encryption=False)
    if not (was_encrypted or sanitize):
        result = keep_original(data, result, "it is not encrypted")
    return EncodedFile(result, pages=len(document.pages), secrets={})
