"""PDF tools: merge files and delete pages by editing PDF objects, without rendering."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING
from warnings import warn

from engine import (
    AnyConversion,
    AnyTool,
    CorruptInput,
    FidelityWarning,
    Format,
    InvalidOption,
    Options,
    conversion,
    hookimpl,
    tool,
)
from engine.lazy_import import lazy_import
from plugins.pdf import PDF, encrypted_error, warn_repaired

if TYPE_CHECKING:
    import pikepdf as _pikepdf

    from plugins._pdf import delete_pages as _delete_pages
    from plugins._pdf import form_fields as _form_fields
    from plugins._pdf import merge as _merge
else:
    _pikepdf = lazy_import("pikepdf")
    _form_fields, _merge, _delete_pages = (
        lazy_import(f"plugins._pdf.{name}") for name in ("form_fields", "merge", "delete_pages")
    )

OBJECTS: Format[_pikepdf.Pdf] = Format("pdf objects", "pikepdf._core.Pdf")

_COST = 2  # more than MuPDF's: without a tool, MuPDF is preferred, because it repairs more damaged files


def _page_count(document: _pikepdf.Pdf) -> int:
    return len(document.pages)


@conversion(PDF, OBJECTS, cost=_COST, lazy=True)
def read(data: bytes, options: Options) -> _pikepdf.Pdf:
    document = _open(data, options)
    if _page_count(document) == 0:
        raise CorruptInput("The PDF has no readable page.")
    if document.get_warnings():
        warn_repaired(data)
    return document


def _open(data: bytes, options: Options) -> _pikepdf.Pdf:
    # The password may apply to some inputs only.
    for password in dict.fromkeys((options.password or "", "")):
        with suppress(_pikepdf.PasswordError):
            document = _pikepdf.open(BytesIO(data), password=password)
            # An empty owner password must not open a file without its user password.
            if password or document.user_password_matched or not document.is_encrypted:
                return document
    raise encrypted_error(options)


@conversion(OBJECTS, PDF, cost=_COST, lazy=True)
def write(document: _pikepdf.Pdf, _options: Options) -> bytes:
    file = BytesIO()
    # Keeps the encryption with its passwords and permissions.
    document.save(file, object_stream_mode=_pikepdf.ObjectStreamMode.generate, encryption=document.is_encrypted)
    return file.getvalue()


@tool("pdf-merge", OBJECTS, sources=(PDF,), count=_page_count, inputs=range(2, 21), options=("password",), lazy=True)
def merge(documents: list[_pikepdf.Pdf], _options: Options) -> _pikepdf.Pdf:
    """Merges PDFs in the given order, with their outlines, links, forms, page labels and attachments."""
    if any(document.is_encrypted for document in documents):
        warn(FidelityWarning("encryption_dropped", "The merged PDF is not encrypted."), stacklevel=2)
    merged = _pikepdf.Pdf.new()
    info = documents[0].trailer.get("/Info")
    if isinstance(info, _pikepdf.Dictionary) and "/Type" not in info:  # in broken files another object
        merged.trailer.Info = merged.copy_foreign(documents[0].make_indirect(info))
    merged.Root.Version = _pikepdf.Name("/" + max(document.pdf_version for document in documents))
    # Releases each input after its pages are copied, to limit memory.
    while documents:
        document = documents.pop(0)
        _form_fields.remove_signatures(document)
        _merge.append(merged, document)
    return merged


@tool("pdf-delete-pages", OBJECTS, sources=(PDF,), count=_page_count, options=("pages", "password"), lazy=True)
def delete_pages(documents: list[_pikepdf.Pdf], options: Options) -> _pikepdf.Pdf:
    """Deletes pages from a PDF, with everything that only they use or that refers to them."""
    (document,) = documents
    if options.pages is None:
        raise InvalidOption("pages is missing.", reason="missing", param="pages")
    count = _page_count(document)
    indices = options.pages.indexes(count)
    if len(indices) == count:
        raise InvalidOption(
            "At least one page must remain.",
            reason="out_of_range",
            param="pages",
            details={"page_count": count},
        )
    _form_fields.remove_signatures(document)
    _delete_pages.remove_pages(document, indices)
    return document


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read, write]


@hookimpl
def tools() -> list[AnyTool]:
    return [merge, delete_pages]
