"""Sheets as tables: values and their types, hidden sheets, merged cells, boxes of text, and JSON."""

import json
import re
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest

from engine import Blocks, CorruptInput, InvalidOption, TooLarge
from engine.blocks import Cell, Table
from plugins._blocks import sheets
from tests.support.results.conversions import codes, convert
from tests.support.samples.office_files import opendocument

_HIDDEN = (
    '<office:automatic-styles><style:style style:name="h" style:family="table">'
    '<style:table-properties table:display="false"/></style:style></office:automatic-styles>'
)
_DATE = '<table:table-cell office:value-type="date" office:date-value="2024-04-03T15:30:00"><text:p>3.4.24</text:p>'
_SUM = '<table:table-cell office:value-type="currency" office:value="1234.5"><text:p>1,234.50 €</text:p>'
_WIDE = (
    '<table:table-cell table:number-columns-spanned="2" office:value-type="string"><text:p>wide</text:p>'
    "</table:table-cell><table:covered-table-cell/>"
)
_KINDS = (
    '<table:table-row><table:table-cell office:value-type="float" office:value="1"><text:p>TRUE</text:p>'
    '</table:table-cell><table:table-cell office:value-type="boolean" office:boolean-value="false"/>'
    '<table:table-cell office:value-type="time" office:time-value="PT42H00M00S"><text:p>42:00</text:p>'
    '</table:table-cell><table:table-cell office:value-type="percentage" office:value="0.125"><text:p>12.5%</text:p>'
    '</table:table-cell><table:table-cell office:value-type="string" office:string-value=""><text:p>#DIV/0!</text:p>'
    "</table:table-cell><table:table-cell><office:annotation><text:p>remark</text:p></office:annotation>"
    "<text:p>cell</text:p></table:table-cell></table:table-row>"
)
_ROWS = (
    f"<table:table-row>{_DATE}</table:table-cell>{_SUM}</table:table-cell></table:table-row>"
    f'<table:table-row table:number-rows-repeated="2"/><table:table-row>{_WIDE}</table:table-row>'
    '<table:table-row table:number-rows-repeated="1048572"/>'
)


def _workbook(tables: str, styles: str = "") -> bytes:
    body = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    return opendocument("spreadsheet", styles + body)


def _sheet(name: str, rows: str = _ROWS, attributes: str = "") -> str:
    return f'<table:table table:name="{name}" {attributes}>{rows}</table:table>'


def _cells(xlsx: bytes) -> str:
    archive = ZipFile(BytesIO(xlsx))
    parts = [f"xl/{name}.xml" for name in ("worksheets/sheet1", "sharedStrings")]
    return "".join(archive.read(name).decode() for name in parts if name in archive.namelist())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, '2024-04-03T15:30:00,"1,234.50 €"\n,\n,\nwide,\n'),
        ({"values": "raw"}, "2024-04-03T15:30:00,1234.5\n,\n,\nwide,\n"),
    ],
)
def test_dates_are_in_iso_and_rows_complete(options: dict[str, Any], expected: str) -> None:
    assert convert(_workbook(_sheet("One")), "csv", **options).data.decode() == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "TRUE,FALSE,42:00,12.5%,#DIV/0!,cell\n"),
        ({"values": "raw"}, "TRUE,FALSE,42:00,0.125,#DIV/0!,cell\n"),
    ],
)
def test_truth_values_times_and_errors_are_as_shown(options: dict[str, Any], expected: str) -> None:
    data = _workbook(_sheet("One", _KINDS))
    assert convert(data, "csv", **options).data.decode() == expected
    row = json.loads(convert(data, "json", **options).data)["sheets"][0]["rows"][0]
    assert row == [True, False, "42:00", 0.125, "#DIV/0!", "cell"]


def test_comments_are_notes() -> None:
    result = convert(_workbook(_sheet("One", _KINDS)), "md", comments=True).data.decode()
    assert "cell[^1] |" in result
    assert result.endswith("[^1]: remark\n")


@pytest.mark.parametrize(
    ("formula", "shown", "expected", "warnings"),
    [
        ('HYPERLINK("http://a.example/?b=""c""";"d")', "d", '[d](http://a.example/?b="c")', set()),
        ('HYPERLINK("#One!B4")', "d", "[d](#One.B4)", set()),
        ("HYPERLINK([.B1])", "http://a.example/", "<http://a.example/>", set()),
        ("HYPERLINK([.B1];[.B2])", "d", "d", {"links_dropped"}),
    ],
)
def test_links_of_formulas(formula: str, shown: str, expected: str, warnings: set[str]) -> None:
    attributes = f'table:formula="of:={formula.replace(chr(34), "&quot;")}" office:value-type="string"'
    cell = f"<table:table-cell {attributes}><text:p>{shown}</text:p></table:table-cell>"
    result = convert(_workbook(_sheet("One", f"<table:table-row>{cell}</table:table-row>")), "md")
    assert f"| {expected} |" in result.data.decode()
    assert codes(result) == warnings


def test_json_has_the_values_of_all_sheets() -> None:
    result = convert(_workbook(_sheet("One") + _sheet("Two", "")), "json")
    assert json.loads(result.data) == {
        "sheets": [
            {"name": "One", "rows": [["2024-04-03T15:30:00", 1234.5], [], [], ["wide", None]]},
            {"name": "Two", "rows": []},
        ]
    }


def test_hidden_sheets_are_told_and_can_be_chosen() -> None:
    data = _workbook(_sheet("Shown", "") + _sheet("Secret", attributes='table:style-name="h"'), _HIDDEN)
    result = convert(data, "json")
    assert [one["name"] for one in json.loads(result.data)["sheets"]] == ["Shown"]
    assert codes(result) == {"pages_dropped"}
    assert json.loads(convert(data, "json", sheet="Secret").data)["sheets"][0]["name"] == "Secret"
    with pytest.raises(InvalidOption):
        convert(data, "json", sheet="Other")


@pytest.mark.parametrize("kind", ["image", "object"])
@pytest.mark.parametrize("place", ["{}", "<table:table-row><table:table-cell>{}</table:table-cell></table:table-row>"])
def test_pictures_and_charts_are_told(kind: str, place: str) -> None:
    frame = f"<draw:frame><draw:{kind}/></draw:frame>"
    shapes = f"<table:shapes>{frame}</table:shapes>" if place == "{}" else place.format(frame)
    assert codes(convert(_workbook(_sheet("One", shapes + _ROWS)), "csv")) == {"pictures_dropped"}


def test_the_words_of_shapes_are_told() -> None:
    box = "<draw:frame><draw:text-box><text:p>boxed text</text:p></draw:text-box></draw:frame>"
    result = convert(_workbook(_sheet("One", f"<table:shapes>{box}</table:shapes>{_ROWS}")), "csv")
    assert codes(result) == {"text_dropped"}


@pytest.mark.parametrize("attribute", ["number-columns-repeated", "number-columns-spanned"])
def test_too_many_cells_are_refused(attribute: str) -> None:
    cell = f'<table:table-cell table:{attribute}="16384"><text:p>a</text:p></table:table-cell>'
    row = f'<table:table-row table:number-rows-repeated="1048576">{cell}</table:table-row>'
    with pytest.raises(TooLarge):
        convert(_workbook(_sheet("One", row)), "csv")


def test_xlsx_has_numbers_and_merged_cells() -> None:
    rows = [(Cell("wide", colspan=2, rowspan=2), Cell("007")), (Cell("1.50"),), (Cell("€ 2", value=2), Cell("=A1"))]
    cells = _cells(sheets.write(Blocks((Table(rows),))))
    assert '<mergeCell ref="A1:B2"/>' in cells
    assert all(value in cells for value in ("<v>1.5</v>", "<v>2</v>", ">007<", ">=A1<"))
    assert "<f>" not in cells


@pytest.mark.parametrize(
    ("texts", "expected", "changed"),
    [
        (("1,234", "4,512,300", "(1,234.50)", "\u22121", "007", "1,23"), (1234, 4512300, -1234.5, -1), 4),
        (("1.234", "1.234,56", "-0,5", "12.5", "01.06.2026"), (1234, 1234.56, -0.5), 3),
        (("1 234,56", "1\u202f234\u202f567,8", "1 234", "6 601 234", "2,"), (1234.56, 1234567.8), 2),
        (("1,234", "1.5", "2,5"), (1.5,), 0),
    ],
)
def test_numbers_are_read_in_the_notation_of_most(
    texts: tuple[str, ...], expected: tuple[float, ...], changed: int
) -> None:
    markup = "<!DOCTYPE html><table>" + "".join(f"<tr><td>{text}" for text in texts) + "</table>"
    result = convert(markup.encode(), "xlsx")
    numbers = re.findall(r'<c r="\w+"(?: s="\d+")?><v>([^<]*)', _cells(result.data))
    assert [*map(float, numbers)] == [*expected]
    messages = [f"{changed} texts are read as numbers, such as {texts[0]}."] if changed else []
    assert [one.message for one in result.outcome.warnings] == messages
    assert "<v>1234.56</v>" not in _cells(sheets.write(Blocks((Table([(Cell("1,234.56"),)], name="Sheet1"),))))


def test_a_document_without_tables_is_told() -> None:
    result = convert(b"<!DOCTYPE html><p>only text", "xlsx")
    assert [one.message for one in result.outcome.warnings] == [
        "The document has no table: none of its 2 words are in the result."
    ]


def test_numbers_that_a_sheet_cannot_hold_are_text_and_told() -> None:
    result = convert(b"[[1234567890123456, NaN, 1%s, 123456789012345]]" % (b"0" * 400), "xlsx", "a.json")
    cells = _cells(result.data)
    assert all(value in cells for value in (">1234567890123456<", ">NaN<", "<v>123456789012345</v>"))
    assert codes(result) == {"values_changed"}


def test_cells_that_cover_too_much_are_written() -> None:
    rows = [(Cell("a"), Cell("b", rowspan=99)), (Cell("c", colspan=2), Cell("d"))]
    cells = _cells(sheets.write(Blocks((Table(rows),))))
    assert '<mergeCell ref="B1:B2"/>' in cells
    assert all(f">{text}<" in cells for text in "abcd")


def test_long_fields_of_csv_are_read() -> None:
    assert convert(b"a,%s\n" % (b"b" * 200_000), "csv", "a.csv").data == b"a,%s\n" % (b"b" * 200_000)


def test_json_becomes_a_table() -> None:
    data = json.dumps([{"name": "a", "size": 1}, {"name": "b", "more": [1]}]).encode()
    assert convert(data, "csv", "a.json").data.decode() == "name,size,more\na,1,\nb,,[1]\n"


@pytest.mark.parametrize("data", [b"{", b'{"a": 1}', b"[1]", b"[" * 100_000, b'{"sheets": [1]}', b'[["\\ud800"]]'])
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptInput, match="JSON"):  # otherwise it is a fault of the reader
        convert(data, "csv", "a.json")
