"""Pages of Office: texts, spreadsheets, presentations and drawings as LibreOffice prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import (
    DOCUMENT,
    AnyConversion,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    conversion,
    hookimpl,
    lazy_imports,
)
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
    ResultStandard,
    Sheet,
)
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, PROGRAMS, Filter
from plugins._pdf.pages.reading import read_pages
from plugins.formats.office import CHECKS, DOC, DOCX, DXF, ODG, ODP, ODS, PPT, PPTX, PUB, VDX, VSD, VSDX, XLS, XLSX

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
_DRAWINGS = Filter("draw_pdf_Export")
_TAGGED = "UseTaggedPDF=true"  # Calc makes no tags.
_ACCESSIBLE = "PDFUACompliance"
_QUALITY = "Quality=90"  # of JPEG; with any setting, others that are not given differ from what the program has

_ENTITY = re.compile(rb"^[ \t]*0\r?\n[ \t]*([A-Z0-9_]*[A-Z][A-Z0-9_]*)\s*$", re.MULTILINE)
_NOT_DRAWN = frozenset(
    b"3DSOLID ACAD_TABLE BODY ELLIPSE HELIX IMAGE LEADER LIGHT MESH MLINE MTEXT MULTILEADER OLE2FRAME OLEFRAME POINT "
    b"RAY REGION SHAPE SPLINE SURFACE TOLERANCE UNDERLAY WIPEOUT XLINE".split()
)
"""Entities of DXF that LibreOffice does not know."""
_LONG_SIDE = 842.0  # points, of A4
_MARGIN = 28.0
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
        pdf_standard: ResultStandard = "none",
    ) -> pymupdf.Document:
        filter_ = _TEXTS._replace(
            paper=documents.paper_of(page_size, landscape, margin),
            export=(
                _TAGGED,
                _QUALITY,
                _switch("ExportNotes", comments),
                _switch("ExportBookmarks", bookmarks),
                _switch(_ACCESSIBLE, pdf_standard == "pdfua-1"),
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
        pdf_standard: ResultStandard = "none",
    ) -> pymupdf.Document:
        export = (
            _TAGGED,
            _QUALITY,
            _switch("ExportNotesPages", notes),
            _switch("ExportNotes", comments),
            _switch("ExportBookmarks", bookmarks),
            _switch(_ACCESSIBLE, pdf_standard == "pdfua-1"),
        )
        written = documents.convert(data, format, _SLIDES._replace(export=export), password)
        return read_pages(written.data, pages=pages)

    return read


def _checked_printer(format: FileFormat) -> AnyConversion:
    """The step that prints a format of drawings of which LibreOffice leaves out what is damaged."""

    @_declare(format, DOCUMENT)
    def read(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
        written = documents.convert(data, format, _DRAWINGS, None).data
        if not any(map(_shapes, read_pages(written))):
            raise _nothing_drawn()
        return read_pages(written, pages=pages)

    return read


def _shapes(page: pymupdf.Page) -> list[pymupdf.Rect]:
    """The boxes of what a page of a drawing shows in front of its background."""
    return [pymupdf.Rect(box) for _, box in page.get_bboxlog()[1:]]


def _nothing_drawn() -> CorruptInput:
    return CorruptInput("The drawing has nothing that LibreOffice draws.")


@_declare(DXF, DOCUMENT)
def read_dxf(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
    """A page in the shape of the drawing, as long as A4. Issues a warning for what is not drawn."""
    missing = sorted({name.decode() for name in _ENTITY.findall(data) if name in _NOT_DRAWN})
    if missing:
        FidelityWarning.issue("effects_dropped", f"LibreOffice does not draw: {', '.join(missing)}.")
    made = read_pages(documents.convert(data, DXF, _DRAWINGS, None).data, pages=pages)
    shapes = _shapes(made[0])
    if not shapes:
        raise _nothing_drawn()
    shown = reduce(pymupdf.Rect.include_rect, shapes)
    scale = (_LONG_SIDE - 2 * _MARGIN) / max(shown.width, shown.height)
    box = pymupdf.Rect(0, 0, shown.width * scale, shown.height * scale) + (_MARGIN,) * 4
    drawing = pymupdf.open()
    drawing.new_page(width=box.x1 + _MARGIN, height=box.y1 + _MARGIN).show_pdf_page(box, made, clip=shown)
    return drawing


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
        *(documents.reader(format, _DRAWINGS) for format in (ODG, VDX, VSDX)),
        *map(_checked_printer, (PUB, VSD)),
        read_dxf,
    ]
