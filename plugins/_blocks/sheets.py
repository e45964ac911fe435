"""Sheets of a workbook: read from the content of an OpenDocument spreadsheet, and written as XLSX."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import chain
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, Any

import xlsxwriter
from lxml import etree
from xlsxwriter.exceptions import OverlappingRange

from engine import Blocks, CorruptInput, FidelityWarning, InvalidOption, TooLarge, blocks
from engine.blocks import Block, Cell, Paragraph, Run, Table, Value, merged

_ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TABLE = _ODF % "table"
_OFFICE = _ODF % "office"
_TEXT = _ODF % "text"
_DRAW = _ODF % "drawing"
_SHAPES = f"{_DRAW}*"
_FRAME = f"{_DRAW}frame"
_PICTURES = (f"{_DRAW}image", f"{_DRAW}object")
_STYLE = _ODF % "style"
_HREF = "{http://www.w3.org/1999/xlink}href"
_BLANKS = (f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break")
_NUMBERS = ("float", "percentage", "currency")
_TRUTHS = MappingProxyType({"TRUE": True, "FALSE": False})
_MIDNIGHT = "T00:00:00"
_MAX_CELLS = 10_000_000
_MAX_ROWS = 1_048_576  # of a sheet, in Excel
_MAX_COLUMNS = 16_384
_MAX_TEXT = 32_767  # characters in a cell of Excel
_MAX_BLANKS = 1_000  # that one element stands for
_MAX_NAME = 31  # characters in the name of a sheet
_NO_NAME = re.compile(r"[\[\]:*?/\\\x00-\x1f]|^'|'$")
_PLAIN = ""  # the notation of numbers without groups of digits
_NUMBERS_IN = MappingProxyType(  # by the mark of decimals
    {
        _PLAIN: re.compile(r"(-?)(0|[1-9]\d*)()(?:\.(\d+))?"),
        **{
            mark: re.compile(
                # In groups that blanks separate, only numbers with decimals, not codes.
                r"([-\u2212(]?)(0|[1-9]\d*|[1-9]\d{0,2}"
                rf"(?:([{group}'\u2019]|[ \xa0\u202f](?=[^{mark}]*{mark}))\d{{3}})(?:\3\d{{3}})*)(?:{mark}(\d+))?\)?"
            )
            for mark, group in (("[.]", ","), (",", "."))
        },
    }
)
_MAX_DIGITS = 15  # A sheet holds no more of a number.
_LINKS = ("http://", "https://", "ftp://", "mailto:", "internal:")
_IN_WORKBOOK = re.compile(r"^#'?([^'.]+)'?\.(\w+)$")  # as OpenDocument writes it
_LINK_TO_TEXT = re.compile(r'of:=HYPERLINK\("((?:[^"]|"")*)"[;)]')  # The address is a text, not calculated.
_MAX_LINK = 2_079  # characters, in Excel
_NAMED = 3  # sheets in a warning


def read(content: IO[bytes], *, sheet: int | str | None = None, raw: bool = False, comments: bool = False) -> Blocks:
    """A table for each sheet of `content.xml`, or for one by its number from 1, or its name.

    Cells show what the sheet shows, but dates are in ISO 8601; with `raw`, numbers have all of their digits. With
    `comments`, those of cells are notes.
    Raises CorruptInput, TooLarge above 10 million cells, and InvalidOption for a sheet that is missing.
    """
    reader = _Reader(raw=raw, comments=comments)
    try:
        tables = [*reader.tables(content)]
    except etree.XMLSyntaxError as error:
        raise CorruptInput("The spreadsheet is damaged.") from error
    blocks.warn_dropped_text(reader.dropped, Counter())
    if reader.pictures:
        message = f"Pictures and charts of sheets are not in the result: {reader.pictures}."
        FidelityWarning.issue("pictures_dropped", message)
    if reader.links_dropped:
        FidelityWarning.issue("links_dropped", "Links with addresses that formulas calculate are not in the result.")
    if sheet is not None:
        return Blocks((_chosen(tables, sheet),))
    hidden = [table.name for table in tables if table.name in reader.hidden]
    if hidden and len(hidden) < len(tables):
        names = ", ".join(hidden[:_NAMED])
        message = f"Hidden sheets are not in the result: {names}. The option `sheet` names one."
        FidelityWarning.issue("pages_dropped", message)
        tables = [table for table in tables if table.name not in reader.hidden]
    return Blocks(tuple(tables))


def _chosen(tables: Sequence[Table], sheet: int | str) -> Table:
    if isinstance(sheet, str):
        found = next((table for table in tables if table.name == sheet), None)
        if found is None:
            details = {"available": [table.name for table in tables[:100]]}
            message = f"The file has no sheet {sheet}."
            raise InvalidOption(message, reason="out_of_range", param="sheet", details=details)
        return found
    if sheet > len(tables):
        message = f"The file has no sheet {sheet}; its last one is {len(tables)}."
        raise InvalidOption(message, reason="out_of_range", param="sheet", details={"max": len(tables)})
    return tables[sheet - 1]


class _Reader:
    """Reads sheets one row after the other.

    `hidden` are the names of those that are not shown, `dropped` the words of shapes, such as boxes of text.
    `pictures` is the number of pictures and charts. `links_dropped` is whether formulas calculate addresses of links.
    """

    def __init__(self, *, raw: bool, comments: bool) -> None:
        self.hidden: set[str] = set()
        self.dropped: Counter[str] = Counter()
        self.pictures = 0
        self.links_dropped = False
        self._raw = raw
        self._comments = comments
        self._cells = 0

    def tables(self, content: IO[bytes]) -> Iterator[Table]:
        """Yields a table for each sheet."""
        hidden_styles: set[str | None] = set()
        rows: list[tuple[Cell, ...]] = []
        blank = 0  # rows that count only if others follow
        tags = (f"{_STYLE}style", f"{_TABLE}table", f"{_TABLE}table-row", f"{_TABLE}shapes")
        for _, element in etree.iterparse(content, tag=tags, huge_tree=True, resolve_entities=False, no_network=True):
            if element.tag == f"{_STYLE}style":
                if element.find(f"{_STYLE}table-properties[@{_TABLE}display='false']") is not None:
                    hidden_styles.add(element.get(f"{_STYLE}name"))
                continue
            if element.tag == f"{_TABLE}shapes":
                self._count_shapes(element)
            elif element.tag == f"{_TABLE}table-row":
                row = self._row(element)
                times = int(element.get(f"{_TABLE}number-rows-repeated", "1"))
                if row:
                    self._count(blank + times * sum(cell.colspan for cell in row))
                    rows += [*[()] * blank, *[row] * times]
                blank = 0 if row else blank + times
            elif next(element.iterancestors(f"{_TABLE}table"), None) is None:
                name = element.get(f"{_TABLE}name", "")
                if element.get(f"{_TABLE}style-name") in hidden_styles:
                    self.hidden.add(name)
                yield Table(rows, name=name)
                rows = []
                blank = 0
            element.clear()

    def _count_shapes(self, element: etree._Element) -> None:
        """Counts pictures, charts and the words of shapes, which are in no cell."""
        for frame in element.iterchildren(_SHAPES):
            self.pictures += sum(next(one.iter(*_PICTURES), None) is not None for one in frame.iter(_FRAME))
            self.dropped += blocks.words(map(_shown, frame.iter(f"{_TEXT}p")))

    def _count(self, cells: int) -> None:
        self._cells += cells
        if self._cells > _MAX_CELLS:
            message = f"The workbook has more than {_MAX_CELLS} cells."
            raise TooLarge(message, reason="elements", details={"max_cells": _MAX_CELLS})

    def _row(self, row: etree._Element) -> tuple[Cell, ...]:
        """The cells of a row, without empty ones at its end."""
        cells: list[Cell] = []
        empty = 0
        for element in row.iterchildren(f"{_TABLE}table-cell"):
            cell = self._cell(element)
            times = int(element.get(f"{_TABLE}number-columns-repeated", "1"))
            if cell == Cell():
                empty += times
                continue
            self._count(empty + times)
            cells += [*[Cell()] * empty, *[cell] * times]
            self._cells -= empty + times
            empty = 0
        return tuple(cells)

    def _cell(self, element: etree._Element) -> Cell:
        self._count_shapes(element)
        kind = element.get(f"{_OFFICE}value-type")
        value = _value(element, kind)
        shown = "\n".join(_shown(one) for one in element.iterchildren(f"{_TEXT}p"))
        if shown in _TRUTHS and value in (False, True):
            value = _TRUTHS[shown]  # LibreOffice has the numbers 0 and 1 of XLSX
        elif value is not None and (kind == "date" or self._raw or not shown):
            shown = str(value).upper() if isinstance(value, bool) else str(value)
        link = next((one.get(_HREF, "") for one in element.iter(f"{_TEXT}a")), "")
        link = link or self._link(element.get(f"{_TABLE}formula", ""), shown)
        said = [_shown(one) for one in element.iterfind(f"{_OFFICE}annotation/{_TEXT}p")] if self._comments else []
        note = tuple(Paragraph((Run(text),)) for text in said if text)
        return Cell(
            (Paragraph(merged((Run(shown, link=link), Run(note=note, comment=True)))),) if note else shown,
            colspan=int(element.get(f"{_TABLE}number-columns-spanned", "1")),
            rowspan=int(element.get(f"{_TABLE}number-rows-spanned", "1")),
            value=value,
            link=link,
        )

    def _link(self, formula: str, shown: str) -> str:
        """The address to which a formula with the function HYPERLINK leads."""
        if "HYPERLINK(" not in formula:
            return ""
        if found := _LINK_TO_TEXT.match(formula):
            address = found[1].replace('""', '"')
            return address.replace("!", ".") if address.startswith("#") else address
        if shown.startswith(_LINKS):
            return shown
        self.links_dropped |= bool(shown)
        return ""


def _value(element: etree._Element, kind: str | None) -> Value:
    """The number, truth value or date that a cell holds; None for text and times."""
    if kind in _NUMBERS:
        number = float(element.get(f"{_OFFICE}value", "0"))
        return int(number) if number.is_integer() and abs(number) < 10**_MAX_DIGITS else number
    if kind == "boolean":
        return bool(element.get(f"{_OFFICE}boolean-value") == "true")
    if kind == "date":
        return str(element.get(f"{_OFFICE}date-value", "")).removesuffix(_MIDNIGHT)
    return None


def _shown(paragraph: etree._Element) -> str:
    """The text of a paragraph of a cell."""
    texts = [paragraph.text or ""]
    for child in paragraph.iterdescendants():
        count = min(int(child.get(f"{_TEXT}c", "1")), _MAX_BLANKS) if child.tag == f"{_TEXT}s" else 1
        blank = " " * count * (child.tag in _BLANKS)
        texts += [child.text or "", blank, child.tail or ""]
    return "".join(texts)


def tables_of(document: Blocks) -> list[Table]:
    """All tables of a document. Issues a warning for the words that are in none of them."""
    tables = [*_tables(document.content)]
    outside = [block for block in document.content if not isinstance(block, Table)]
    words = blocks.words(blocks.plain_texts(document.content if outside else ()))
    if words and not tables:
        message = f"The document has no table: none of its {words.total()} words are in the result."
        FidelityWarning.issue("text_dropped", message)
    elif outside:
        blocks.warn_dropped_text(words, blocks.words(blocks.plain_texts(tables)))
    return tables


def _tables(content: Iterable[Block]) -> Iterator[Table]:
    """Yields the tables in the blocks, and those in their cells. It does not visit cells with plain text."""
    for block in content:
        for run in blocks.own_runs(block):
            yield from _tables(run.note)
        if isinstance(block, Table):
            yield block
            contents = (cell.content for row in block.rows for cell in row if not isinstance(cell.content, str))
            yield from _tables(chain.from_iterable(contents))
        else:
            yield from _tables(blocks.children(block))


def write(document: Blocks) -> bytes:
    """XLSX with a sheet for each table. Raises TooLarge for more rows or columns than Excel holds."""
    file = BytesIO()
    with TemporaryDirectory() as folder:
        tables = tables_of(document) or [Table(())]
        has_merged = any(map(_is_merged, chain.from_iterable(row for table in tables for row in table.rows)))
        with xlsxwriter.Workbook(file, {"constant_memory": not has_merged, "tmpdir": folder}) as workbook:
            writer = _Writer(workbook)
            for number, table in enumerate(tables, 1):
                writer.write(table, number)
    if writer.inexact:
        message = f"{writer.inexact} numbers are text, because a sheet holds {_MAX_DIGITS} digits of a number."
        FidelityWarning.issue("values_changed", message)
    if writer.read:
        message = f"{len(writer.read)} texts are read as numbers, such as {writer.read[0]}."
        FidelityWarning.issue("values_changed", message)
    if writer.shortened:
        message = f"{writer.shortened} texts are longer than the {_MAX_TEXT} characters that a cell holds."
        FidelityWarning.issue("text_dropped", message)
    return file.getvalue()


class _Writer:
    """Writes sheets. `shortened` is the number of texts that are too long for a cell, `inexact` that of numbers.

    `read` are the texts that become numbers, but have another notation.
    """

    def __init__(self, workbook: Any) -> None:
        self.shortened = 0
        self.inexact = 0
        self.read: list[str] = []
        self._workbook = workbook
        self._names: set[str] = set()
        self._formats: dict[str, Any] = {}

    def write(self, table: Table, number: int) -> None:
        """Adds a sheet."""
        notation = _PLAIN if table.name else _notation(table)  # a whole sheet has its own numbers
        sheet = self._workbook.add_worksheet(self._name(table, number))
        for row, cells in enumerate(table.grid()):
            _check_size(row + 1, len(cells))
            for column, cell in enumerate(cells):
                if cell is not None:
                    if _is_merged(cell):
                        last = min(row + cell.rowspan, len(table.rows)) - 1
                        with suppress(OverlappingRange):  # of cells that cover others twice
                            sheet.merge_range(row, column, last, column + cell.colspan - 1, "")
                    self._write_cell(sheet, row, column, cell, notation)

    def _name(self, table: Table, number: int) -> str:
        wanted = table.name or "".join(run.text for run in table.caption) or f"Table {number}"
        name = _NO_NAME.sub("_", wanted)[:_MAX_NAME]
        copy = 1
        while name.lower() in self._names:
            copy += 1
            ending = f" ({copy})"
            name = _NO_NAME.sub("_", wanted)[: _MAX_NAME - len(ending)] + ending
        self._names.add(name.lower())
        return name

    def _write_cell(self, sheet: Any, row: int, column: int, cell: Cell, notation: str) -> None:
        value, number_format = _typed(cell, notation)
        if isinstance(value, int | float) and not _is_held(value):
            self.inexact += 1
            value = cell.text
        if isinstance(value, bool):
            sheet.write_boolean(row, column, value)
        elif isinstance(value, int | float):
            if value != _typed(cell, _PLAIN)[0]:
                self.read.append(cell.text)
            sheet.write_number(row, column, value, self._format(number_format))
        elif value:
            self.shortened += len(value) > _MAX_TEXT
            link = cell.link and _IN_WORKBOOK.sub(r"internal:'\1'!\2", cell.link)
            if link.startswith(_LINKS) and len(link) <= _MAX_LINK:
                sheet.write_url(row, column, link, string=value[:_MAX_TEXT])
            else:
                sheet.write_string(row, column, value[:_MAX_TEXT])

    def _format(self, shown: str) -> Any:
        """The format of numbers that are shown so; None for an empty one."""
        if shown and shown not in self._formats:
            self._formats[shown] = self._workbook.add_format({"num_format": shown})
        return self._formats.get(shown)


def _is_merged(cell: Cell) -> bool:
    return cell.colspan > 1 or cell.rowspan > 1


def _check_size(rows: int, columns: int) -> None:
    if rows > _MAX_ROWS or columns > _MAX_COLUMNS:
        message = f"A sheet holds at most {_MAX_ROWS} rows and {_MAX_COLUMNS} columns."
        details = {"max_rows": _MAX_ROWS, "max_columns": _MAX_COLUMNS}
        raise TooLarge(message, reason="elements", details=details)


def _notation(table: Table) -> str:
    """The notation of most numbers of a table that can be read in one way only: 1,234 can be one or a thousand."""
    found: Counter[str] = Counter()
    for cell in chain.from_iterable(table.rows):
        text = cell.text
        fitting = [mark for mark, number in _NUMBERS_IN.items() if mark and number.fullmatch(text)]
        found.update(fitting if len(fitting) == 1 else ())
    (first, count), (_, others) = (*found.most_common(2), *[(_PLAIN, 0)] * 2)[:2]
    return first if count > others else _PLAIN


def _typed(cell: Cell, notation: str) -> tuple[str | int | float | bool, str]:
    """What a cell holds, a number also for a text that is exactly one, and the format that shows the number so.

    Codes such as 007 and 1E5 stay text.
    """
    text = cell.text
    match = _NUMBERS_IN[notation].fullmatch(text)
    sign, whole, group, decimals = match.groups() if match else ("", "", None, None)
    shown = ("#,##0" if group else "0") + f".{'0' * len(decimals or '')}".rstrip(".")
    if sign == "(":
        shown += f";({shown})"
    shown = "" if shown == "0" else shown
    if isinstance(cell.value, bool | int | float):
        return cell.value, shown
    if match is None or (sign == "(") != text.endswith(")") or sum(map(str.isdigit, text)) > _MAX_DIGITS:
        return text, ""
    digits = "-" * bool(sign) + re.sub(r"\D", "", whole)
    return (float(f"{digits}.{decimals}") if decimals else int(digits)), shown


def _is_held(value: float) -> bool:
    """Whether a cell of Excel holds a number: it is finite, and an integer has no more than its digits."""
    return abs(value) < 10**_MAX_DIGITS if isinstance(value, int) else math.isfinite(value)


def rows_of(table: Table) -> Iterator[list[str]]:
    """Yields the texts of each row, all with as many columns; cells that others cover are empty."""
    width = max((sum(cell.colspan for cell in row) for row in table.rows), default=0)
    for cells in table.grid():
        texts = ["" if cell is None else cell.text for cell in cells]
        yield [*texts, *[""] * (width - len(texts))]
