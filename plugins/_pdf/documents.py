"""Opens and saves PDF files as objects, with and without encryption, and sets their title and author."""

from collections.abc import Callable, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any

import pikepdf
from pikepdf import Dictionary, Name, Page, Pdf, String

from engine import CorruptInput, FidelityWarning, InvalidOption, PageRanges, split_list
from engine.mupdf import pymupdf
from plugins._pdf.active_content import check_active_content
from plugins._pdf.form_fields import remove_signatures
from plugins._pdf.objects import open_with, saved
from plugins._pdf.pages.reading import encrypted_error, warn_repaired
from plugins._pdf.passwords import warn_unused


def open_document(data: bytes, given: str | None) -> Pdf:
    """Opens a file, if it is encrypted with the given password. Issues a warning for a password that is not needed.

    Raises UnknownFormat, reason `pdf_encrypted`, and CorruptInput for a file without pages.
    """
    return open_with_password(data, given)[0]


def open_with_password(data: bytes, given: str | None) -> tuple[Pdf, str]:
    """Opens a file as `open_document` does. Also returns the password that opened it, which is empty without one."""
    document, opening = _open(data, given)
    if "/Size" not in document.trailer:  # QPDF does not add it
        document.trailer.Size = len(document.objects)
    count = len(document.pages)
    if count == 0:
        raise CorruptInput("The PDF has no readable page.")
    # Pages cannot be added to or removed from a list with a wrong count.
    wrong_count = document.Root.Pages.get("/Count") != count
    if wrong_count:
        document.Root.Pages.Count = count
    if wrong_count or document.get_warnings():
        warn_repaired(data)
    return document, opening


def _open(data: bytes, given: str | None) -> tuple[Pdf, str]:
    try:
        document, opening = open_with(data, given or "")
    except pikepdf.PasswordError:
        raise encrypted_error(given) from None
    if given and not opening:
        warn_unused()
    return document, opening


def blank_documents(document: Pdf, data: bytes, password: str | None) -> Callable[[], Pdf]:
    """Makes documents without pages that have the passwords and permissions of a document, which is in `data`."""
    if not document.is_encrypted:
        return Pdf.new
    with _open(data, password)[0] as blank:
        for holder, kept in ((blank.Root, ()), (blank.trailer, ("/Root", "/Encrypt", "/ID", "/Size"))):
            for key in set(holder.keys()).difference(kept):
                del holder[key]
        blank.Root.Type = Name.Catalog
        blank.Root.Pages = blank.make_indirect(Dictionary(Type=Name.Pages, Kids=[], Count=0))
        file = BytesIO()
        blank.save(file, encryption=True)
    return lambda: _open(file.getvalue(), password)[0]


def save_document(document: Pdf, *, sanitize: bool = False, encryption: Any = None) -> bytes:
    """The document as a file, without its active content if `sanitize`; otherwise with a warning if it has any.

    Without signatures, for it has changed, with a warning. `encryption` is as in `saved`.
    """
    remove_signatures(document)
    check_active_content(document, sanitize=sanitize)
    return saved(document, encryption=encryption)


def selected(document: Pdf, pages: str) -> list[tuple[int, Page]]:
    """The pages that are in ranges such as 1-3,5, with their indexes from 0, in the order of the document.

    Raises InvalidOption for a page that does not exist.
    """
    chosen = set(PageRanges.parse(pages).indexes(len(document.pages)))
    return [(index, page) for index, page in enumerate(document.pages) if index in chosen]


def missing_option(names: tuple[str, ...]) -> InvalidOption:
    """The error of a request without any of these options."""
    return InvalidOption(f"One of {', '.join(names)} must be given.", reason="missing", param=names[0])


def needs_repair(data: bytes) -> bool:
    """Whether readers have to repair a file."""
    with pymupdf.open(stream=data, filetype="pdf") as document:
        return bool(document.is_repaired)


def keep_original(data: bytes, result: bytes, reason: str) -> bytes:
    """The original, with a warning that has the reason; the result if readers have to repair the original."""
    if needs_repair(data):
        return result
    FidelityWarning.issue("kept_original", f"The original is the result: {reason}.", of_original=True)
    return data


_XMP = MappingProxyType(
    {"title": "dc:title", "author": "dc:creator", "subject": "dc:description", "keywords": "pdf:Keywords"}
)
_SUBJECTS = "dc:subject"  # the keywords as a list


def set_information(document: Pdf, values: Mapping[str, str]) -> None:
    """Sets these values by name; an empty one is removed. Others stay. A packet that is not XML is replaced."""
    info = document.trailer.get("/Info")
    if not isinstance(info, Dictionary) or "/Type" in info:  # broken files may name another object
        document.trailer.Info = document.make_indirect(Dictionary())
    for name, value in values.items():
        key = f"/{name.capitalize()}"
        if value:
            document.trailer.Info[key] = String(value)
        elif key in document.trailer.Info:
            del document.trailer.Info[key]
    with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as packet:
        for name, value in values.items():
            listed = {_SUBJECTS: {item.strip() for item in split_list(value)}} if name == "keywords" else {}
            texts = {_XMP[name]: [value] if name == "author" else value, **listed}
            for key, text in texts.items():
                is_needed = key != _SUBJECTS or key in packet
                if key in packet:
                    del packet[key]
                if value and is_needed:
                    packet[key] = text
