"""Metafiles of Windows: EMF, EMF+ and WMF. LibreOffice draws them on a page of their size."""

from __future__ import annotations

import struct
import zipfile
from functools import reduce
from io import BytesIO
from operator import xor
from typing import TYPE_CHECKING

from engine import DOCUMENT, AnyConversion, CorruptInput, FileFormat, Signature, any_of, conversion, hookimpl
from engine.option_types import Pages
from plugins._office import libreoffice
from plugins._office.libreoffice import LIBREOFFICE, PROGRAMS, Filter
from plugins._pdf.pages import reading
from plugins._pdf.pages.reading import read_pages

if TYPE_CHECKING:
    import pymupdf

EMF = FileFormat("emf", media_type="image/emf", extensions=("emf",), sniff=Signature((0, b"\1\0\0\0"), (40, b" EMF")))
_WMF_BOX_START = b"\xd7\xcd\xc6\x9a"
_WMF_STARTS = [struct.pack("<3H", kind, 9, version) for kind in (1, 2) for version in (0x100, 0x300)]  # without the box
WMF = FileFormat(
    "wmf",
    media_type="image/wmf",
    extensions=("wmf",),
    sniff=any_of(*(Signature((0, start)) for start in (_WMF_BOX_START, *_WMF_STARTS))),
)

MODULES = reading.MODULES
TEMPLATE = "documents"
_COST = 10.0
_EMF_FRAME = struct.Struct("<24x4i")
_PER_MM = 100
_EMF_SIZE = struct.Struct("<48xI")  # bytes in the file
_WMF_BOX = struct.Struct("<6x4hH")  # the last number is the units per inch
_WMF_SIZE = struct.Struct("<28xI")  # size in words of all after the box
_WMF_START = 22  # offset after the box
_WMF_HEADER_SIZE = 18  # bytes
_WMF_END = struct.pack("<IH", 3, 0)  # the last record
_WMF_RECORD = struct.Struct("<IH")  # the size of a record in words, and its function
# Functions.
_WMF_MAP_MODE = 0x0103
_WMF_ORIGIN = 0x020B
_WMF_EXTENT = 0x020C
_WMF_MAX_RECORDS = 10_000  # the extent has to be in the first of them
# Map modes whose units have no size.
_WMF_PIXEL_MODE = 1
_WMF_FREE_MODES = (7, 8)
# Assumed units per inch.
_PIXELS = 96
_TWIPS = 1440
_MAX_PIXELS = 2_000  # a drawing with a longer side is taken to be in twips
_MM_PER_INCH = 25.4
_MAX_SIDE = 2_000.0  # mm; larger drawings are made smaller
_DRAWING = "application/vnd.oasis.opendocument.graphics"
_NAMES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"'
    for name, urn in (
        ("office", "office"), ("style", "style"), ("draw", "drawing"), ("manifest", "manifest"),
        ("svg", "svg-compatible"), ("fo", "xsl-fo-compatible"),
    )
)  # fmt: skip
_MANIFEST = (
    '<manifest:manifest {names}><manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
    '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
    '<manifest:file-entry manifest:full-path="styles.xml" manifest:media-type="text/xml"/>'
    '<manifest:file-entry manifest:full-path="{file}" manifest:media-type=""/></manifest:manifest>'
)
_STYLES = (
    '<office:document-styles {names} office:version="1.2"><office:styles/><office:automatic-styles>'
    '<style:page-layout style:name="page"><style:page-layout-properties fo:margin="0mm" '
    'fo:page-width="{width}mm" fo:page-height="{height}mm"/></style:page-layout></office:automatic-styles>'
    '<office:master-styles><style:master-page style:name="master" style:page-layout-name="page"/>'
    "</office:master-styles></office:document-styles>"
)
_CONTENT = (
    '<office:document-content {names} xmlns:xlink="http://www.w3.org/1999/xlink" office:version="1.2"><office:body>'
    '<office:drawing><draw:page draw:master-page-name="master"><draw:frame svg:x="0mm" svg:y="0mm" '
    'svg:width="{width}mm" svg:height="{height}mm"><draw:image xlink:href="{file}"/></draw:frame></draw:page>'
    "</office:drawing></office:body></office:document-content>"
)


def _emf_size(data: bytes) -> tuple[float, float]:
    """Width and height in mm. Raises CorruptInput, and struct.error."""
    if _EMF_SIZE.unpack_from(data)[0] > len(data):
        raise CorruptInput("The file is truncated.")
    left, top, right, bottom = _EMF_FRAME.unpack_from(data)
    return (right - left) / _PER_MM, (bottom - top) / _PER_MM


def _with_box(data: bytes) -> bytes:
    """A WMF with a box before its header, made of its records if there is none. Raises CorruptInput, struct.error."""
    if data.startswith(_WMF_BOX_START):
        return data
    found: dict[int, tuple[int, ...]] = {}
    records = bytearray(data)
    start = _WMF_HEADER_SIZE
    for _ in range(_WMF_MAX_RECORDS):
        if _WMF_EXTENT in found or start + _WMF_RECORD.size > len(data):
            break
        words, function = _WMF_RECORD.unpack_from(data, start)
        if function in (_WMF_MAP_MODE, _WMF_ORIGIN, _WMF_EXTENT):
            found[function] = struct.unpack_from("<h" if function == _WMF_MAP_MODE else "<2h", data, start + 6)
        if found.get(_WMF_MAP_MODE) == (_WMF_PIXEL_MODE,):  # in which LibreOffice ignores the extent
            found[_WMF_MAP_MODE] = _WMF_FREE_MODES[-1:]
            struct.pack_into("<h", records, start + 6, *found[_WMF_MAP_MODE])
        start += 2 * max(words, 3)
    if found.get(_WMF_MAP_MODE, _WMF_FREE_MODES)[0] not in _WMF_FREE_MODES:
        raise CorruptInput("A WMF in units of length needs a header with its size.")
    height, width = found.get(_WMF_EXTENT, (0, 0))
    top, left = found.get(_WMF_ORIGIN, (0, 0))
    units = _PIXELS if max(abs(width), abs(height)) <= _MAX_PIXELS else _TWIPS
    box = _WMF_BOX_START + struct.pack("<5hHI", 0, left, top, left + width, top + height, units, 0)
    return box + struct.pack("<H", reduce(xor, struct.unpack("<10H", box))) + records


def _wmf_size(data: bytes) -> tuple[float, float]:
    """Width and height in mm. Raises CorruptInput, and struct.error."""
    counted = 0 if data.endswith(_WMF_END) else _WMF_START  # some programs count the box, too
    if counted + 2 * _WMF_SIZE.unpack_from(data)[0] > len(data):
        raise CorruptInput("The file is truncated.")
    left, top, right, bottom, units = _WMF_BOX.unpack_from(data)
    scale = _MM_PER_INCH / max(units, 1)
    return abs(right - left) * scale, abs(bottom - top) * scale


def _read(data: bytes, format: FileFormat, size: tuple[float, float]) -> bytes:
    """The drawing as a PDF of one page. Raises CorruptInput."""
    if min(size) <= 0:
        raise CorruptInput("The drawing has no size.")
    scale = min(1, _MAX_SIDE / max(size))
    file = f"Pictures/drawing.{format}"
    fields = {"names": _NAMES, "file": file, "width": size[0] * scale, "height": size[1] * scale, "kind": _DRAWING}
    drawing = BytesIO()
    with zipfile.ZipFile(drawing, "w") as archive:
        archive.writestr("mimetype", _DRAWING)
        for name, text in (("META-INF/manifest.xml", _MANIFEST), ("styles.xml", _STYLES), ("content.xml", _CONTENT)):
            archive.writestr(name, text.format(**fields))
        archive.writestr(file, data)
    return libreoffice.convert(drawing.getvalue(), "odg", Filter("draw_pdf_Export")).data


@conversion(EMF, DOCUMENT, cost=_COST, programs=PROGRAMS, isolated=True)
def read_emf(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
    return read_pages(_read(data, EMF, _emf_size(data)), pages=pages)


@conversion(WMF, DOCUMENT, cost=_COST, programs=PROGRAMS, isolated=True)
def read_wmf(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
    data = _with_box(data)
    return read_pages(_read(data, WMF, _wmf_size(data)), pages=pages)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read_emf, read_wmf] if LIBREOFFICE.present else []
