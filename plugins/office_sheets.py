"""Spreadsheets: XLSX, XLS, ODS and CSV, by LibreOffice."""

import csv
from io import StringIO
from itertools import islice

from engine import AnyConversion, FileFormat, TooLarge, decode_text, hookimpl
from plugins import _office
from plugins._libreoffice import LIBREOFFICE, Filter

XLSX = FileFormat(
    "xlsx",
    media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    extensions=("xlsx", "xlsm", "xltx", "xltm"),
    sniff=_office.sniff_package("xl/workbook.xml"),
)
XLS = FileFormat(
    "xls",
    media_type="application/vnd.ms-excel",
    extensions=("xls", "xlt"),
    sniff=_office.sniff_streams("Workbook", "Book"),
)
ODS = FileFormat(
    "ods",
    media_type="application/vnd.oasis.opendocument.spreadsheet",
    extensions=("ods", "ots"),
    sniff=_office.sniff_opendocument("spreadsheet"),
)
CSV = FileFormat(
    "csv", media_type="text/csv", extensions=("csv",), text_extensions=("csv", "tsv"), sniff=lambda _content: 0
)
_READING = "44,34,76,1"  # separated by commas, quoted, in UTF-8, from the first line
_WRITING = f"{_READING},,0,false,true"  # values as they are shown
_SEPARATORS = "\t;,"
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
    separator = next((one for one in _SEPARATORS if _separates(text, one)), ",")
    table = StringIO()
    csv.writer(table).writerows(csv.reader(StringIO(text, newline=""), delimiter=separator))
    return table.getvalue().encode()


def _separates(text: str, separator: str) -> bool:
    """Whether the character separates each of the first lines into the same number of cells, at least two."""
    rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
    (count, *others) = {len(row) for row in islice(rows, _LINES) if row} or {0}
    return count > 1 and not others


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    pages = Filter("calc_pdf_Export")
    readers = [_office.reader(format, pages) for format in (XLSX, XLS, ODS)]
    from_csv = [(format, filter_._replace(reading=_READING)) for format, filter_ in _TARGETS if format is not CSV]
    return [
        *readers,
        _office.reader(CSV, pages._replace(reading=_READING), _separate_by_commas),
        *_office.writers((XLSX, XLS, ODS), _TARGETS),
        *_office.writers((CSV,), from_csv, _separate_by_commas),
    ]
