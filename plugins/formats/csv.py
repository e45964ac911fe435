"""CSV, read and written by Python's reader. LibreOffice prints it as a sheet."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from io import StringIO
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    FidelityWarning,
    FileFormat,
    Loss,
    any_of,
    conversion,
    decode_text,
    hookimpl,
    lazy_imports,
)
from engine.blocks import Cell, Table
from engine.option_types import Encoding, Landscape, Margin, Pages, PageSize
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, PROGRAMS, Filter
from plugins._pdf.pages.reading import read_pages
from plugins.formats.office import XLSX

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._blocks import sheets

MODULES = ("plugins._blocks.sheets", "encodings.utf_16_le", *documents.MODULES)
TEMPLATE = documents.TEMPLATE

CSV = FileFormat("csv", media_type="text/csv", extensions=("csv",), text_extensions=("csv", "tsv"), sniff=any_of())

Separator: TypeAlias = Annotated[
    Literal["comma", "semicolon", "tab", "pipe"], Field(description="Character between the cells of a row in CSV.")
]
Bom: TypeAlias = Annotated[
    bool, Field(description="Begins CSV with a byte order mark, by which Excel recognizes UTF-8.")
]
_CHARACTERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_SEPARATORS = "\t;|,"  # the first wins among equally frequent ones
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n', re.IGNORECASE)  # the first line, as Excel writes it
_LINES = 20
_MAX_FIELD = 1 << 30  # characters; a field can be as long as a file


@conversion(CSV, BLOCKS, isolated=True)
def read(data: bytes, *, encoding: Encoding | None = None) -> Blocks:
    """One table with the texts of the cells. The character between them is detected."""
    text = decode_text(data, encoding)
    csv.field_size_limit(_MAX_FIELD)
    if declared := _DECLARED.match(text):
        separator = declared[1]
        text = text[declared.end() :]
    else:
        separator = max(_SEPARATORS, key=lambda one: _separated_lines(text, one))
    cells = (tuple(map(Cell, row)) for row in csv.reader(StringIO(text, newline=""), delimiter=separator))
    return Blocks((Table([*cells], name="Sheet1"),))


@conversion(BLOCKS, CSV, loss=Loss.DETAIL)
def write(document: Blocks, *, separator: Separator = "comma", bom: Bom = False) -> bytes:
    """The first table in UTF-8, or a line feed. All rows have as many cells."""
    tables = sheets.tables_of(document)
    if len(tables) > 1:
        message = f"Only the first of {len(tables)} tables was converted. The option `sheet` names one of a workbook."
        FidelityWarning.issue("pages_dropped", message)
    text = StringIO()
    rows = csv.writer(text, delimiter=_CHARACTERS[separator], lineterminator="\n")
    rows.writerows(sheets.rows_of(tables[0]) if tables else [])
    return (codecs.BOM_UTF8 if bom else b"") + (text.getvalue() or "\n").encode()


@conversion(CSV, DOCUMENT, cost=documents.COST, programs=PROGRAMS, isolated=True)
def print_table(
    data: bytes,
    *,
    pages: Pages | None = None,
    encoding: Encoding | None = None,
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
) -> pymupdf.Document:
    """The pages that LibreOffice prints of the table."""
    workbook = sheets.write(read.run(data, encoding=encoding))
    filter_ = Filter("calc_pdf_Export", paper=documents.paper_of(page_size, landscape, margin))
    return read_pages(documents.convert(workbook, XLSX, filter_, None).data, pages=pages)


def _separated_lines(text: str, separator: str) -> int:
    """How many of the first lines the character separates into the same number of cells, at least two."""
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    counts = Counter(len(row) for row in islice(rows, _LINES) if len(row) > 1)
    return max(counts.values(), default=0)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read, write, *([print_table] if LIBREOFFICE.present else [])]
