"""JSON: the structure of a document, or the sheets of a workbook."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain
from types import MappingProxyType
from typing import Any

from engine import BLOCKS, Blocks, CorruptInput, FileFormat, Loss, any_of, blocks, conversion

JSON = FileFormat(
    "json",
    media_type="application/json",
    extensions=("json",),
    sniff=any_of(),  # any text can be JSON
    text_extensions=("json",),
)
MODULES = ("encodings.utf_8_sig",)

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIRST_SHEET = "Sheet1"
_TYPES = MappingProxyType(
    {
        blocks.Paragraph: "paragraph",
        blocks.Heading: "heading",
        blocks.ItemList: "list",
        blocks.Table: "table",
        blocks.Quote: "quote",
        blocks.Code: "code",
        blocks.Break: "break",
    }
)


@conversion(JSON, BLOCKS, isolated=True)
def read(data: bytes) -> Blocks:
    """Tables: an array of rows, which are arrays or objects, or such an array as `rows` of each object in `sheets`.

    The names of objects become the first row. Raises CorruptInput for other JSON.
    """
    try:
        tree = json.loads(data.decode("utf-8-sig"))
        if _SURROGATE.search(data):
            json.dumps(tree, ensure_ascii=False).encode()  # raises for half of a character
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CorruptInput(f"The file is no JSON: {error}.") from error
    sheets = tree.get("sheets") if isinstance(tree, dict) else [{"name": _FIRST_SHEET, "rows": tree}]
    if not isinstance(sheets, list) or not all(isinstance(one, dict) for one in sheets):
        raise CorruptInput("The JSON has no table: neither an array of rows nor `sheets` with a `name` and `rows`.")
    return Blocks(tuple(_table(str(one.get("name", "")), one.get("rows")) for one in sheets))


def _table(name: str, rows: Any) -> blocks.Table:
    if not isinstance(rows, list) or not all(isinstance(row, list | dict) for row in rows):
        raise CorruptInput("The rows of a table in JSON are arrays of values, or objects.")
    names = list(dict.fromkeys(chain.from_iterable(row for row in rows if isinstance(row, dict))))
    head = [tuple(map(blocks.Cell, names))] if names else []
    lists = ([row.get(one) for one in names] if isinstance(row, dict) else row for row in rows)
    return blocks.Table([*head, *(tuple(map(_cell, row)) for row in lists)], header_rows=len(head), name=name)


def _cell(value: Any) -> blocks.Cell:
    """A cell with a value; arrays and objects stay JSON."""
    if value is None:
        return blocks.Cell()
    if isinstance(value, str):
        return blocks.Cell(value)
    is_plain = isinstance(value, bool | int | float)
    return blocks.Cell(json.dumps(value, ensure_ascii=False), value=value if is_plain else None)


@conversion(BLOCKS, JSON, loss=Loss.DETAIL)
def write(document: Blocks) -> bytes:
    """The tree of blocks, with pictures in Base64. A workbook becomes its sheets with the values of their cells.

    Fields that have their default are left out.
    """
    if document.content and all(isinstance(one, blocks.Table) and one.name for one in document.content):
        tree: dict[str, Any] = {"sheets": [_sheet(one) for one in document.content if isinstance(one, blocks.Table)]}
    else:
        tree = {"type": "document", **_fields(document)}
        tree["blocks"] = tree.pop("content", [])
    return json.dumps(tree, ensure_ascii=False).encode()


def _sheet(table: blocks.Table) -> dict[str, Any]:
    return {"name": table.name, "rows": [[_held(cell) for cell in row] for row in table.grid()]}


def _held(cell: blocks.Cell | None) -> blocks.Value:
    if cell is None:
        return None
    return cell.text or None if cell.value is None else cell.value


def _fields(node: Any) -> dict[str, Any]:
    """The fields of a node that have another value than their default."""
    given = ((one, getattr(node, one.name)) for one in fields(node))
    return {one.name: _value(value) for one, value in given if value != one.default and value != ()}


def _value(value: Any) -> Any:
    if isinstance(value, blocks.Cell):
        cell = _fields(value)
        cell.pop("content", None)
        return {"blocks": [_value(block) for block in value.blocks], **cell}
    if type(value) in _TYPES:
        return {"type": _TYPES[type(value)], **_fields(value)}
    if isinstance(value, blocks.Run | blocks.ListItem | blocks.Picture):
        return _fields(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(one) for one in value]
    return value
