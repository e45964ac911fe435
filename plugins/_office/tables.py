"""Tables in CSV, which LibreOffice reads and writes."""

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
    DOCUMENT,
    AnyConversion,
    FidelityWarning,
    FileFormat,
    TooLarge,
    any_of,
    conversion,
    decode_text,
    lazy_imports,
)
from engine.option_types import Encoding, Pages, Password
from plugins._office import documents
from plugins._office.documents import COST, convert
from plugins._office.libreoffice import PROGRAMS, Filter
from plugins._pdf.pages.reading import read_pages

with lazy_imports():
    from engine.mupdf import pymupdf

MODULES = documents.MODULES
TEMPLATE = documents.TEMPLATE

CSV = FileFormat("csv", media_type="text/csv", extensions=("csv",), text_extensions=("csv", "tsv"), sniff=any_of())

Values: TypeAlias = Annotated[
    Literal["shown", "raw"], Field(description="Cells in CSV: as a sheet shows them, or their values with all digits.")
]
Sheet: TypeAlias = Annotated[int, Field(ge=1, le=10_000, examples=[2], description="Number of the sheet for CSV.")]
Separator: TypeAlias = Annotated[
    Literal["comma", "semicolon", "tab", "pipe"], Field(description="Character between the cells of a row in CSV.")
]
Bom: TypeAlias = Annotated[
    bool, Field(description="Begins CSV with a byte order mark, by which Excel recognizes UTF-8.")
]
_CHARACTERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
# Separated by commas, quoted, in UTF-8, from the first line; what is quoted is text.
_READING = "44,34,76,1,,0,true"
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")
_MAX_DIGITS = 15  # A sheet holds no more of a number.
_SEPARATORS = "\t;|,"  # the first wins among equally frequent ones
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n', re.IGNORECASE)  # the first line, as Excel writes it
_LINES = 20
_MAX_LINES = 100_000


def reader(filter_: Filter) -> AnyConversion:
    """The step that opens CSV as the pages that LibreOffice prints."""

    @conversion(CSV, DOCUMENT, cost=COST, programs=PROGRAMS, isolated=True)
    def read(data: bytes, *, pages: Pages | None = None, encoding: Encoding | None = None) -> pymupdf.Document:
        written = convert(_with_quotes(data, encoding), CSV, filter_._replace(reading=_READING), None)
        return read_pages(written.data, pages=pages)

    return read


def from_csv(target: FileFormat, filter_: Filter) -> AnyConversion:
    """The step from CSV to a format of spreadsheets."""

    @conversion(CSV, target, cost=COST, programs=PROGRAMS, isolated=True, terminal=True)
    def write(data: bytes, *, encoding: Encoding | None = None) -> bytes:
        """Numbers become numbers. Codes such as 007 and 1E5, dates and formulas stay the text that they are."""
        return convert(_with_quotes(data, encoding), CSV, filter_._replace(reading=_READING), None).data

    return write


def to_csv(source: FileFormat) -> AnyConversion:
    """The step from a format of spreadsheets to CSV in UTF-8."""

    @conversion(source, CSV, cost=COST, programs=PROGRAMS, isolated=True, terminal=True)
    def write(
        data: bytes,
        *,
        password: Password | None = None,
        values: Values = "shown",
        sheet: Sheet | None = None,
        separator: Separator = "comma",
        bom: Bom = False,
    ) -> bytes:
        number = sheet or 1
        shown = str(values == "shown").lower()
        writing = f"{ord(_CHARACTERS[separator])},34,76,1,,0,false,true,{shown},false,false,{number}"
        filter_ = Filter("Text - txt - csv (StarCalc)", "csv", writing=writing, sheet=number, raw=values == "raw")
        written = convert(data, source, filter_, password)
        if sheet is None and (written.sheets or 1) > 1:
            message = f"Only the first of {written.sheets} sheets was converted. The option `sheet` names another one."
            FidelityWarning.issue("pages_dropped", message)
        return codecs.BOM_UTF8 + written.data if bom else written.data

    return write


def _with_quotes(data: bytes, encoding: str | None) -> bytes:
    """The same table in UTF-8, separated by commas, with quotes around all that is no number."""
    text = decode_text(data, encoding)
    if text.count("\n") > _MAX_LINES:
        message = f"The table has more than {_MAX_LINES} lines."
        raise TooLarge(message, reason="elements", details={"max_lines": _MAX_LINES})
    if declared := _DECLARED.match(text):
        separator = declared[1]
        text = text[declared.end() :]
    else:
        separator = max(_SEPARATORS, key=lambda one: _separated_lines(text, one))
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    return "".join(",".join(map(_quoted, row)) + "\r\n" for row in rows).encode()


def _quoted(cell: str) -> str:
    """The cell with quotes, unless it is empty, or a number that a sheet holds exactly."""
    if not cell or (_NUMBER.fullmatch(cell) and sum(map(str.isdigit, cell)) <= _MAX_DIGITS):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _separated_lines(text: str, separator: str) -> int:
    """How many of the first lines the character separates into the same number of cells, at least two."""
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    counts = Counter(len(row) for row in islice(rows, _LINES) if len(row) > 1)
    return max(counts.values(), default=0)
