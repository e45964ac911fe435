"""Opens PDF files for MuPDF: encrypted and damaged ones, and some of their pages, with what refers to these."""

from __future__ import annotations

from engine import CorruptInput, FidelityWarning, PageRanges, TooLarge, UnknownFormat, lazy_imports

with lazy_imports():
    import pikepdf

    from engine.mupdf import pymupdf
    from plugins._pdf import form_fields, objects, passwords
    from plugins._pdf.pages import parts

MODULES = ("engine.mupdf", "encodings.raw_unicode_escape", "plugins._pdf.text.texts", "plugins._pdf.pages.parts")
_MAX_REPEATED_PAGES = 10_000


def read_pages(data: bytes, password: str | None = None, pages: str | None = None) -> pymupdf.Document:
    """Opens a PDF with some of its pages; all without `pages`.

    Raises UnknownFormat, reason `pdf_encrypted`, CorruptInput for a file without pages, and TooLarge.
    """
    document = pymupdf.open(stream=data, filetype="pdf")
    if password and not document.needs_pass and not passwords.is_of_owner(document, password):
        passwords.warn_unused()
    if not passwords.authenticate(document, password or ""):
        raise encrypted_error(password)
    if _has_repeated_pages(document):
        document = pymupdf.open(stream=with_distinct_pages(data, password or ""), filetype="pdf")
    if document.page_count == 0:
        raise CorruptInput("The PDF has no readable page.")
    if document.is_repaired:
        warn_repaired(data)
    indexes = PageRanges.parse(pages or "all").indexes(document.page_count)
    if indexes == list(range(document.page_count)):
        return document
    selected = select_pages(data, password or "", indexes)
    if selected is None:
        document.select(indexes)
        return document
    document = pymupdf.open(stream=selected, filetype="pdf")
    passwords.authenticate(document, password or "")
    return document


def _has_repeated_pages(document: pymupdf.Document) -> bool:
    """Whether the document has more pages than objects, which MuPDF takes for damage. Raises TooLarge."""
    try:
        return int(document.page_count) < 0
    except RuntimeError:
        kind, count = document.xref_get_key(document.pdf_catalog(), "Pages/Count")
    if kind == "int" and int(count) > _MAX_REPEATED_PAGES:
        message = f"The file has {count} pages, of which some are the same; the limit is {_MAX_REPEATED_PAGES}."
        raise TooLarge(message, reason="pages", details={"max_pages": _MAX_REPEATED_PAGES, "pages": int(count)})
    return True


def warn_repaired(data: bytes) -> None:
    """Issues a warning for a PDF that had to be repaired."""
    FidelityWarning.issue("repaired", "The PDF is damaged; only its recoverable parts were converted.")


def encrypted_error(password: str | None) -> UnknownFormat:
    """The error for an encrypted PDF without the right password."""
    problem = "a password is required" if password is None else "the password is incorrect"
    return UnknownFormat(f"The PDF is encrypted; {problem}.", reason="pdf_encrypted")


def with_distinct_pages(data: bytes, password: str) -> bytes:
    """The document with an object for each page, without encryption. A page can be in it several times."""
    with objects.open_pdf(data, password) as document:
        len(document.pages)  # replaces repeated pages by copies
        return objects.saved(document, encryption=False)


def select_pages(data: bytes, password: str, indices: list[int]) -> bytes | None:
    """The document with the pages at `indices`, which count from 0, in this order.

    None if it is damaged. Issues a warning for links to other pages, and for an XFA form.
    """
    try:
        with objects.open_pdf(data, password) as document:
            signed = form_fields.is_signed(document)
            parts.keep_pages(document, indices)
            if signed:  # the step that writes a PDF finds it
                document.Root.Perms = pikepdf.Dictionary()
            return objects.saved(document)
    except (pikepdf.PdfError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return None
