"""PDF tools: merging, and deleting pages, on the file's own objects, so that nothing is drawn anew."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING
from warnings import warn

from engine import CorruptInput, FidelityWarning, Format, InvalidOption, Options, conversion, hookimpl, tool
from engine.conversions import AnyConversion, AnyTool
from engine.lazy_import import lazy_import
from engine.options import invalid_pages
from plugins.pdf import PDF, locked, told_repaired

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

_COST = 2  # above that of MuPDF, which mends more when nothing is to be kept apart


def _count(document: _pikepdf.Pdf) -> int:
    return len(document.pages)


@conversion(PDF, OBJECTS, cost=_COST, lazy=True)
def read(data: bytes, options: Options) -> _pikepdf.Pdf:
    document = _opened(data, options)
    if _count(document) == 0:
        raise CorruptInput("The PDF has no readable page.")
    if document.get_warnings():
        told_repaired(data)
    return document


def _opened(data: bytes, options: Options) -> _pikepdf.Pdf:
    # Of several inputs, some may need the password and others none.
    for password in dict.fromkeys((options.password or "", "")):
        with suppress(_pikepdf.PasswordError):
            document = _pikepdf.open(BytesIO(data), password=password)
            # Some writers leave the owner's password empty, which is no leave for everybody.
            if password or document.user_password_matched or not document.is_encrypted:
                return document
    raise locked(options)


@conversion(OBJECTS, PDF, cost=_COST, lazy=True)
def write(document: _pikepdf.Pdf, _options: Options) -> bytes:
    file = BytesIO()
    # What is encrypted stays so, with its passwords and permissions.
    document.save(file, object_stream_mode=_pikepdf.ObjectStreamMode.generate, encryption=document.is_encrypted)
    return file.getvalue()


@tool("pdf-merge", OBJECTS, sources=(PDF,), count=_count, inputs=range(2, 21), options=("password",), lazy=True)
def merge(documents: list[_pikepdf.Pdf], _options: Options) -> _pikepdf.Pdf:
    """Joins PDFs into one, in the order given, with their outlines, links, forms, labels and attachments."""
    if any(document.is_encrypted for document in documents):
        warn(FidelityWarning("encryption_dropped", "The merged PDF is not encrypted."), stacklevel=2)
    merged = _pikepdf.Pdf.new()
    facts = documents[0].trailer.get("/Info")
    if isinstance(facts, _pikepdf.Dictionary) and "/Type" not in facts:  # some writers point at anything
        merged.trailer.Info = merged.copy_foreign(documents[0].make_indirect(facts))
    merged.Root.Version = _pikepdf.Name("/" + max(document.pdf_version for document in documents))
    # Appending copies: each input goes once it is appended, so that none is held twice.
    while documents:
        document = documents.pop(0)
        _form_fields.unsign(document)
        _merge.append(merged, document)
    return merged


@tool("pdf-delete-pages", OBJECTS, sources=(PDF,), count=_count, options=("pages", "password"), lazy=True)
def delete_pages(documents: list[_pikepdf.Pdf], options: Options) -> _pikepdf.Pdf:
    """Deletes pages from a PDF, with all that is only on them or leads to them."""
    (document,) = documents
    if options.pages is None:
        raise InvalidOption("pages is missing.", reason="missing", param="pages")
    count = _count(document)
    chosen = options.pages.indexes(count)
    if len(chosen) == count:
        raise invalid_pages("At least one page has to remain.", {"page_count": count})
    _form_fields.unsign(document)
    _delete_pages.remove_pages(document, chosen)
    return document


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read, write]


@hookimpl
def tools() -> list[AnyTool]:
    return [merge, delete_pages]
