"""Damaged and hostile slides, workbooks, CSV and JSON: each becomes text, or an error that blames the file."""

import json
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import pytest
from pptx import Presentation

from engine import ConversionError
from engine.blocks import Blocks, Cell, Table
from plugins._blocks import sheets
from plugins._office.libreoffice import LIBREOFFICE
from tests.support.results.conversions import convert
from tests.support.samples.broken import BLAMED
from tests.support.samples.office_files import opendocument

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

_REFUSED = BLAMED | {"elements", "memory_limit", "file_encrypted"}
_SECRET = "/etc/hostname"
_ROWS = "<table:table-row><table:table-cell><text:p>cell</text:p></table:table-cell></table:table-row>"
_TABLE = f'<table:table table:name="A">{_ROWS}</table:table>'
_BODY = f"<office:body><office:spreadsheet>{_TABLE}</office:spreadsheet></office:body>"
_ENTITIES = b'<!DOCTYPE x [<!ENTITY a "%s">%s<!ENTITY f SYSTEM "file://%s">]>'


def _pptx() -> bytes:
    deck = Presentation()
    deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "cell"
    file = BytesIO()
    deck.save(file)
    return file.getvalue()


def _samples() -> Mapping[str, tuple[bytes, str]]:
    """Files by their format, and the part that holds the text of those that are archives."""
    table = Table([(Cell("cell"), Cell("2")), (Cell("3"), Cell("4"))])
    return {
        "pptx": (_pptx(), "ppt/slides/slide1.xml"),
        "xlsx": (sheets.write(Blocks((table,))), "xl/worksheets/sheet1.xml"),
        "ods": (opendocument("spreadsheet", _BODY), "content.xml"),
        "csv": (b'cell,"two\nlines",3\n' * 20, ""),
        "json": (json.dumps({"sheets": [{"name": "A", "rows": [["cell", 1.5, None]] * 20}]}).encode(), ""),
    }


def _changed(data: bytes, part: str, content: bytes | None) -> bytes:
    file = BytesIO()
    with ZipFile(BytesIO(data)) as archive, ZipFile(file, "w", ZIP_DEFLATED) as made:
        for name in archive.namelist():
            changed = content if name == part else archive.read(name)
            if changed is not None:
                made.writestr(name, changed, ZIP_STORED if name == "mimetype" else ZIP_DEFLATED)
    return file.getvalue()


def _damaged(data: bytes) -> Iterator[bytes]:
    """Cut files, and files with other bytes."""
    yield from (data[: len(data) * tenth // 10] for tenth in range(1, 10))
    rng = np.random.default_rng(7)
    for _ in range(11):
        changed = bytearray(data)
        for position in rng.integers(4, len(data), 8):
            changed[position] ^= int(rng.integers(1, 256))
        yield bytes(changed)


def _hostile_parts(part: bytes) -> Iterator[bytes | None]:
    """Other contents of the part with the text: none, bombs, entities, and elements in elements."""
    opened = re.search(rb"<([a-z]+:)?(?:sp|p|c|table-cell)\b", part)
    assert opened is not None
    before, element = part[: opened.start()], opened[0]
    references = b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 9) for n in range(4))
    doctype = _ENTITIES % (b"bomb" * 99, references, _SECRET.encode())
    start = part.index(b"?>") + 2 if part.startswith(b"<?xml") else 0
    yield from (None, b"", b"<", b"\0" * 99, part[: len(part) // 2], part[::-1], b" " * (80 << 20) + part)
    yield from (
        before + element + b">" * 1 + element.join([b"", *[b">"] * 50_000]),
        before + (element + b">") * 300_000,
    )
    for entity in (b"&e;", b"&f;"):
        yield part[:start] + doctype + part[start:].replace(b"cell", entity)
    yield re.sub(rb'="\d+"', b'="99999999999999999999"', part)
    yield re.sub(rb'="\d+"', b'="-1"', part)
    yield re.sub(rb'="\d+"', b'="x"', part)
    yield part.replace(b"<table:table-cell>", b'<table:table-cell table:number-columns-repeated="999999999">')
    yield part.replace(b"<table:table-row>", b'<table:table-row table:number-rows-repeated="999999999">')
    yield part.replace(b"<table:table-cell>", b'<table:table-cell table:number-columns-spanned="999999999">')
    yield part.replace(b"<text:p>", b'<text:p><text:s text:c="999999999"/>')


_HOSTILE_TEXTS = {
    "csv": (
        *(b"", b"\0" * 999, b'"' * 99_999, b'"open\n' * 99),
        *(b"," * 500_000, b"a" * 200_000, b"\xff\xfe\0", b"sep=\n"),
    ),
    "json": (
        *(b"[" * 99_999, b'{"a":' * 99_999, b"[[" + b"1" * 9_999 + b"]]", b"[[NaN, 1e999]]", b'[["\\ud800"]]', b"null"),
        *(b'{"sheets": [{"rows": [1]}]}', b'{"sheets": [{"name": {}, "rows": [[{"a": [1]}]]}]}', b"[null]"),
    ),
}


@pytest.mark.parametrize("format", ["pptx", "xlsx", "ods", "csv", "json"])
def test_damaged_and_hostile_files_are_converted_or_blamed(format: str) -> None:
    data, part = _samples()[format]
    if format == "xlsx" and not LIBREOFFICE.present:
        pytest.skip("LibreOffice is not installed")
    files = [*_damaged(data), *_HOSTILE_TEXTS.get(format, [])]
    if part:
        content = ZipFile(BytesIO(data)).read(part)
        files += [_changed(data, part, one) for one in _hostile_parts(content)]
        files += [_changed(data, "[Content_Types].xml", b"<Types/>"), _changed(data, "META-INF/manifest.xml", b"<")]
    faults = []
    for number, file in enumerate(files):
        try:
            result = convert(file, "json", f"a.{format}").data
        except ConversionError as error:
            if (error.reason or error.code) not in _REFUSED:
                faults.append((number, error.code, error.reason))
        else:
            assert Path(_SECRET).read_bytes().strip() not in result
    assert faults == []
    assert len(files) >= 28
