"""Spreadsheets: XLSX, XLS, ODS and CSV, by LibreOffice."""

import csv
import re
from collections import Counter
from io import StringIO
from itertools import islice

from engine import AnyConversion, FileFormat, TooLarge, any_of, decode_text, hookimpl
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, Filter

XLSX = FileFormat(
    "xlsx",
    media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    extensions=("xlsx", "xlsm", "xltx", "xltm"),
    sniff=documents.sniff_package("xl/workbook.xml"),
)
XLS = FileFormat(
    "xls",
    media_type="application/vnd.ms-excel",
    extensions=("xls", "xlt"),
    sniff=documents.sniff_streams("Workbook", "Book"),
)
ODS = FileFormat(
    "ods",
    media_type="application/vnd.oasis.opendocument.spreadsheet",
    extensions=("ods", "ots"),
    sniff=documents.sniff_opendocument("spreadsheet"),
)
CSV = FileFormat("csv", media_type="text/csv", extensions=("csv",), text_extensions=("csv", "tsv"), sniff=any_of())
_READING = "44,34,76,1"  # separated by commas, quoted, in UTF-8, from the first line
_WRITING = f"{_READING},,0,false,true"  # values as they are shown
_SEPARATORS = "\t;|,"  # the first wins among equally frequent ones
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n', re.IGNORECASE)  # the first line, as Excel writes it
_LINES = 20
_MAX_LINES = 100_000
_TARGETS = (
    (XLSX, Filter("Calc MS Excel 2007 XML", "xlsx")),
    (ODS, Filter("calc8", "ods")),
    (CSV, Filter("Text - txt - csv (StarCalc)", "csv", writing=_WRITING, single_sheet=True)),
)


def _separate_by_commas(data: bytes) -> bytes:
    """The same table in UTF-8, separated by commas."""
    text = decode_text(data)
    if text.count("\n") > _MAX_LINES:
        message = f"The table has more than {_MAX_LINES} lines."
        raise TooLarge(message, reason="elements", details={"max_lines": _MAX_LINES})
    if declared := _DECLARED.match(text):
        separator, text = declared[1], text[declared.end() :]
    else:
        separator = max(_SEPARATORS, key=lambda one: _separated_lines(text, one))
    table = StringIO()
    csv.writer(table).writerows(csv.reader(StringIO(text, newline=""), delimiter=separator))
    return table.getvalue().encode()


def _separated_lines(text: str, separator: str) -> int:
    """How many of the first lines the character separates into the same number of cells, at least two."""
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    counts = Counter(len(row) for row in islice(rows, _LINES) if len(row) > 1)
    return max(counts.values(), default=0)


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    pages = Filter("calc_pdf_Export")
    readers = [documents.reader(format, pages) for format in (XLSX, XLS, ODS)]
    from_csv = [(format, filter_._replace(reading=_READING)) for format, filter_ in _TARGETS if format is not CSV]
    return [
        *readers,
        documents.reader(CSV, pages._replace(reading=_READING), _separate_by_commas),
        *documents.writers((XLSX, XLS, ODS), _TARGETS),
        *documents.writers((CSV,), from_csv, _separate_by_commas),
    ]
