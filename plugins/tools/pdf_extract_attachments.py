"""Extracts the files that are attached to a PDF."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZipFile

from engine import (
    ANY_FILE,
    EncodedFile,
    FidelityWarning,
    InvalidOption,
    UniqueNames,
    extension_of,
    lazy_imports,
    safe_stem,
    tool,
)
from engine.option_types import Password
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import attachments, documents

MODULES = ("plugins._pdf.documents", "plugins._pdf.attachments")
TEMPLATE = "documents"


@tool(
    "pdf-extract-attachments",
    PDF,
    title="Extract attachments of a PDF",
    words="embedded files",
    sources=(PDF,),
    target=ANY_FILE,
    isolated=True,
    archive=True,
    encodes=True,
)
def extract_attachments(data: bytes, *, password: Password | None = None) -> EncodedFile:
    """Extracts the files that are attached to a PDF or to places on its pages, as a ZIP."""
    document = documents.open_document(data, password)
    found = [*attachments.read_attachments(document)]
    if not found:
        raise InvalidOption("The PDF has no attached file.", reason="nothing_found", param="file")
    made = BytesIO()
    names = UniqueNames()
    damaged = 0
    with ZipFile(made, "w") as archive:
        for one in found:
            try:
                archive.writestr(names.add(_safe(one.name)), one.stream.read_bytes())
            except pikepdf.PdfError:
                damaged += 1
    if damaged:
        FidelityWarning.issue("attachments_dropped", f"{damaged} attached files are damaged.")
    return EncodedFile(made.getvalue(), archived=len(found) - damaged)


def _safe(name: str) -> str:
    """The name of an attachment without its path, as a file name that is harmless on all systems."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    extension = extension_of(last)
    stem = safe_stem(last[: -len(extension) - 1] if extension else last) or "attachment"
    return f"{stem}.{extension}" if extension else stem
