"""Merges PDFs by editing PDF objects, without rendering."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import FidelityWarning, InputNames, TooLarge, lazy_imports, tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, form_fields
    from plugins._pdf.pages import merge as merging

MODULES = (*pdf_objects.MODULES, "plugins._pdf.form_fields", "plugins._pdf.pages.merge")
TEMPLATE = "documents"

_MAX_MERGED_PAGES = 10_000  # adding a page takes time in proportion to the pages before it
Outline = Annotated[bool, Field(description="Adds an outline entry for each file, above the entries of the file.")]


@tool(
    "pdf-merge",
    OBJECTS,
    title="Merge PDFs",
    sources=(PDF,),
    count=page_count,
    inputs=range(2, 21),
    output_name="merged",
)
def merge(documents: list[pikepdf.Pdf], *, outline: Outline = False, names: InputNames = ()) -> pikepdf.Pdf:
    """Merges PDFs in the given order, with their outlines, links, forms, page labels and attachments."""
    pages = sum(map(page_count, documents))
    if pages > _MAX_MERGED_PAGES:
        message = f"The files have {pages} pages in total; the limit is {_MAX_MERGED_PAGES}."
        raise TooLarge(message, reason="pages", details={"max_pages": _MAX_MERGED_PAGES, "pages": pages})
    if any(document.is_encrypted for document in documents):
        FidelityWarning.issue("encryption_dropped", "The merged PDF is not encrypted.")
    if not all(archive_claims.is_same_claim(documents[0], document) for document in documents[1:]):
        for document in documents:
            archive_claims.remove_claim(document)
    version = max(document.pdf_version for document in documents)
    for number, document in enumerate(documents):
        form_fields.remove_signatures(document)
        form_fields.remove_xfa(document)
        if outline:
            merging.put_below_item(document, names[number] if names else str(number + 1))
    merged = _without_encryption(documents.pop(0))
    merged.Root.Version = pikepdf.Name(f"/{version}")
    # Releases each input after its pages are copied, to limit memory.
    while documents:
        merging.append(merged, documents.pop(0))
    return merged


def _without_encryption(document: pikepdf.Pdf) -> pikepdf.Pdf:
    """The document itself, or a copy if it is encrypted."""
    if not document.is_encrypted:
        return document
    copy = pikepdf.Pdf.new()
    info = document.trailer.get("/Info")
    if isinstance(info, pikepdf.Dictionary) and "/Type" not in info:  # broken files may name another object
        copy.trailer.Info = copy.copy_foreign(document.make_indirect(info))
    merging.append(copy, document)
    return copy
