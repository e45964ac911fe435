"""PDF tools: merge files and delete pages by editing PDF objects, without rendering."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

from engine import (
    CorruptInput,
    FidelityWarning,
    Format,
    InvalidOption,
    PageRanges,
    TooLarge,
    ToolResult,
    conversion,
    tool,
)
from engine.option_types import Pages, Password, Sanitize
from plugins.pdf import PDF, encrypted_error, warn_repaired

if TYPE_CHECKING:
    import pikepdf

OBJECTS: Format[pikepdf.Pdf] = Format("pdf objects", "pikepdf._core.Pdf")

MODULES = ("plugins._pdf.active_content", "plugins._pdf.merge", "plugins._pdf.delete_pages")
_COST = 2  # more than MuPDF's: without a tool, MuPDF is preferred, because it repairs more damaged files

_MAX_MERGED_PAGES = 10_000  # adding a page takes time in proportion to the pages before it


def _page_count(document: pikepdf.Pdf) -> int:
    return len(document.pages)


@conversion(PDF, OBJECTS, cost=_COST, isolated=True)
def read(data: bytes, *, password: Password | None = None) -> pikepdf.Pdf:
    document = _open(data, password)
    if _page_count(document) == 0:
        raise CorruptInput("The PDF has no readable page.")
    # Pages cannot be added to or removed from a list with a wrong count.
    wrong_count = document.Root.Pages.get("/Count") != _page_count(document)
    if wrong_count:
        document.Root.Pages.Count = _page_count(document)
    if wrong_count or document.get_warnings():
        warn_repaired(data)
    return document


def _open(data: bytes, given: str | None) -> pikepdf.Pdf:
    import pikepdf

    # The password may apply to some inputs only.
    for password in dict.fromkeys((given or "", "")):
        with suppress(pikepdf.PasswordError):
            document = pikepdf.open(BytesIO(data), password=password)
            # An empty owner password must not open a file without its user password.
            if password or document.user_password_matched or not document.is_encrypted:
                return document
    raise encrypted_error(given)


@conversion(OBJECTS, PDF, cost=_COST)
def write(document: pikepdf.Pdf, *, sanitize: Sanitize = False) -> bytes:
    import pikepdf

    from plugins._pdf.active_content import check_active_content

    check_active_content(document, sanitize=sanitize)
    file = BytesIO()
    # Keeps the encryption with its passwords and permissions.
    document.save(file, object_stream_mode=pikepdf.ObjectStreamMode.generate, encryption=document.is_encrypted)
    return file.getvalue()


@tool(
    "pdf-merge",
    OBJECTS,
    title="Merge PDFs",
    sources=(PDF,),
    count=_page_count,
    inputs=range(2, 21),
    output_name="merged",
)
def merge(documents: list[pikepdf.Pdf]) -> pikepdf.Pdf:
    """Merges PDFs in the given order, with their outlines, links, forms, page labels and attachments."""
    import pikepdf

    from plugins._pdf.form_fields import remove_signatures
    from plugins._pdf.merge import append

    pages = sum(map(_page_count, documents))
    if pages > _MAX_MERGED_PAGES:
        raise TooLarge(
            f"The files have {pages} pages in total; the limit is {_MAX_MERGED_PAGES}.",
            reason="pages",
            details={"max_pages": _MAX_MERGED_PAGES, "pages": pages},
        )
    if any(document.is_encrypted for document in documents):
        FidelityWarning.issue("encryption_dropped", "The merged PDF is not encrypted.")
    version = max(document.pdf_version for document in documents)
    merged = _without_encryption(documents.pop(0))
    merged.Root.Version = pikepdf.Name(f"/{version}")
    remove_signatures(merged)
    # Releases each input after its pages are copied, to limit memory.
    while documents:
        document = documents.pop(0)
        remove_signatures(document)
        append(merged, document)
    return merged


def _without_encryption(document: pikepdf.Pdf) -> pikepdf.Pdf:
    """The document itself, or a copy if it is encrypted."""
    import pikepdf

    from plugins._pdf.merge import append

    if not document.is_encrypted:
        return document
    copy = pikepdf.Pdf.new()
    info = document.trailer.get("/Info")
    if isinstance(info, pikepdf.Dictionary) and "/Type" not in info:  # in broken files another object
        copy.trailer.Info = copy.copy_foreign(document.make_indirect(info))
    append(copy, document)
    return copy


@tool(
    "pdf-delete-pages",
    OBJECTS,
    title="Delete PDF pages",
    sources=(PDF,),
    count=_page_count,
)
def delete_pages(document: pikepdf.Pdf, *, pages: Pages) -> ToolResult[pikepdf.Pdf]:
    """Deletes pages from a PDF, with everything that only they use or that refers to them."""
    from plugins._pdf.delete_pages import remove_pages
    from plugins._pdf.form_fields import remove_signatures

    count = _page_count(document)
    indices = PageRanges.parse(pages).indexes(count)
    if len(indices) == count:
        raise InvalidOption(
            "At least one page must remain.",
            reason="out_of_range",
            param="pages",
            details={"page_count": count},
        )
    remove_signatures(document)
    remove_pages(document, indices)
    return ToolResult(document, facts={"deleted_pages": tuple(index + 1 for index in indices)})
