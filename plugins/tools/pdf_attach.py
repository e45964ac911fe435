"""Attaches files to a PDF."""

from __future__ import annotations

import mimetypes
from typing import Annotated

from engine import InputFile, NamedFile, extension_of, lazy_imports, tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, name_trees

MODULES = pdf_objects.MODULES
TEMPLATE = "documents"

Attachments = Annotated[
    tuple[NamedFile, ...],
    InputFile(None, "The files to attach, of any format, with their names.", maximum=20, example="data.csv"),
]


@tool(
    "pdf-attach", OBJECTS, title="Attach files to a PDF", words="embed files enclose", sources=(PDF,), count=page_count
)
def attach(document: pikepdf.Pdf, *, attachments: Attachments) -> pikepdf.Pdf:
    """Attaches files of any format to a PDF, beside those that it has."""
    if archive_claims.claim_of(document).get(b"part") in (b"1", b"2"):  # they permit no files, or PDF/A files only
        archive_claims.remove_claim(document)
    root = document.Root
    names = root.get("/Names")
    if not isinstance(names, pikepdf.Dictionary):
        names = root.Names = document.make_indirect(pikepdf.Dictionary())
    entries = name_trees.read_name_tree(names.get("/EmbeddedFiles"))
    associated = name_trees.as_list(root.get("/AF"))
    for file in attachments:
        key = bytes(pikepdf.String(file.name))
        key = name_trees.unique_name(key, {used for used, _ in entries})
        kind = mimetypes.types_map.get(f".{extension_of(file.name)}")  # guess_type would read files of the system
        added = pikepdf.AttachedFileSpec(
            document,
            file.data,
            filename=file.name,
            mime_type=kind or "application/octet-stream",
            description="",
            creation_date="",
            mod_date="",
        ).obj
        entries.append((key, added))
        associated.append(added)
    names.EmbeddedFiles = document.make_indirect(name_trees.make_name_tree(entries))
    root.AF = pikepdf.Array(associated)
    return document
