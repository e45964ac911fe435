"""Pages of Office: texts, spreadsheets and presentations as LibreOffice prints them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import DOCUMENT, AnyConversion, FileFormat, conversion, hookimpl, lazy_imports
from engine.option_types import (
    Bookmarks,
    Comments,
    Landscape,
    Margin,
    Markup,
    Notes,
    Pages,
    PageSize,
    Password,
    Sheet,
)
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, PROGRAMS, Filter
from plugins._pdf.pages.reading import read_pages
from plugins.formats.office import CHECKS, DOC, DOCX, ODG, ODP, ODS, PPT, PPTX, VSDX, XLS, XLSX

with lazy_imports():
    from engine.mupdf import pymupdf

MODULES = documents.MODULES
TEMPLATE = documents.TEMPLATE

FitToWidth: TypeAlias = Annotated[bool, Field(description="Scales sheets so that all columns fit on a page.")]
SinglePageSheets: TypeAlias = Annotated[
    bool, Field(description="Prints each sheet on one page, as large as the sheet.")
]
_TEXTS = Filter("writer_pdf_Export")
_SHEETS = Filter("calc_pdf_Export")
_SLIDES = Filter("impress_pdf_Export")
_TAGGED = "UseTaggedPDF=true"  # Calc makes no tags.
_QUALITY = "Quality=90"  # of JPEG; with any setting, others that are not given differ from what the program has

_declare = partial(conversion, cost=documents.COST, programs=PROGRAMS, isolated=True)


def _text_printer(format: FileFormat, prepare: Callable[[bytes], bytes] = bytes) -> AnyConversion:
    """The step that prints a format of texts. `prepare` changes the file before."""

    @_declare(format, DOCUMENT)
    def read(
        data: bytes,
        *,
        password: Password | None = None,
        pages: Pages | None = None,
        page_size: PageSize | None = None,
        landscape: Landscape | None = None,
        margin: Margin | None = None,
        markup: Markup = "all",
        comments: Comments = False,
        bookmarks: Bookmarks = True,
    ) -> pymupdf.Document:
        filter_ = _TEXTS._replace(
            paper=documents.paper_of(page_size, landscape, margin),
            export=(
                _TAGGED,
                _QUALITY,
                _switch("ExportNotes", comments),
                _switch("ExportBookmarks", bookmarks),
            ),
            changes="" if markup == "all" else markup,
        )
        written = documents.convert(prepare(data), format, filter_, password)
        return read_pages(written.data, pages=pages)

    return read


def _sheet_printer(format: FileFormat) -> AnyConversion:
    """The step that prints a format of spreadsheets."""

    @_declare(format, DOCUMENT)
    def read(
        data: bytes,
        *,
        password: Password | None = None,
        pages: Pages | None = None,
        page_size: PageSize | None = None,
        landscape: Landscape | None = None,
        margin: Margin | None = None,
        sheet: Sheet | None = None,
        fit_to_width: FitToWidth = False,
        single_page_sheets: SinglePageSheets = False,
        comments: Comments = False,
        bookmarks: Bookmarks = True,
    ) -> pymupdf.Document:
        filter_ = _SHEETS._replace(
            paper=documents.paper_of(page_size, landscape, margin),
            export=(
                _QUALITY,
                _switch("SinglePageSheets", single_page_sheets),
                _switch("ExportNotes", comments),
                _switch("ExportBookmarks", bookmarks),
            ),
            sheet=sheet or "",
            fit=fit_to_width,
        )
        written = documents.convert(data, format, filter_, password)
        return read_pages(written.data, pages=pages)

    return read


def _slide_printer(format: FileFormat) -> AnyConversion:
    """The step that prints a format of presentations."""

    @_declare(format, DOCUMENT)
    def read(
        data: bytes,
        *,
        password: Password | None = None,
        pages: Pages | None = None,
        notes: Notes = False,
        comments: Comments = False,
        bookmarks: Bookmarks = True,
    ) -> pymupdf.Document:
        export = (
            _TAGGED,
            _QUALITY,
            _switch("ExportNotesPages", notes),
            _switch("ExportNotes", comments),
            _switch("ExportBookmarks", bookmarks),
        )
        written = documents.convert(data, format, _SLIDES._replace(export=export), password)
        return read_pages(written.data, pages=pages)

    return read


def _switch(name: str, value: bool) -> str:
    return f"{name}={str(value).lower()}"


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    return [
        *map(_text_printer, (DOCX, DOC)),
        *(_text_printer(*one) for one in CHECKS),
        *map(_sheet_printer, (XLSX, XLS, ODS)),
        *map(_slide_printer, (PPTX, PPT, ODP)),
        *(documents.reader(format, Filter("draw_pdf_Export")) for format in (ODG, VSDX)),
    ]
