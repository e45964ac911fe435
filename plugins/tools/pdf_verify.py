"""Verifies the signatures of a PDF."""

from __future__ import annotations

import json

from engine import AnyTool, EncodedFile, hookimpl, lazy_imports, tool
from engine.option_types import Password
from plugins.formats.json import JSON
from plugins.formats.pdf import PDF
from plugins.tools.pdf_sign import PYHANKO

with lazy_imports():
    from plugins._pdf import documents, signatures

MODULES = ("plugins._pdf.documents", "plugins._pdf.signatures") if PYHANKO.present else ()
TEMPLATE = "documents/signatures"


@tool(
    "pdf-verify",
    PDF,
    title="Verify signatures of a PDF",
    words="check signature valid",
    sources=(PDF,),
    target=JSON,
    isolated=True,
    encodes=True,
)
def verify(data: bytes, *, password: Password | None = None) -> EncodedFile:
    """Lists the signatures of a PDF, and whether they are valid; not whether their certificates are to be trusted."""
    document, opening = documents.open_with_password(data, password)
    found = {"signatures": signatures.verify(document, data, opening)}
    return EncodedFile(json.dumps(found, ensure_ascii=False, indent=2).encode())


@hookimpl
def tools() -> list[AnyTool]:
    return [verify] if PYHANKO.present else []
