"""Compressed data of TIFF pages that PDF can hold as it is: Group 4 and JPEG."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import chain

import imagecodecs
from tifffile import COMPRESSION, PHOTOMETRIC, TiffPage

from engine import Size
from plugins._jpeg.segments import END, check_scans, inspect_coding, read_segments
from plugins._pdf.images.image_pages import Stream, Tiles, group4_stream
from plugins._tiff import codec

_START, _STOP = b"\xff\xd8", b"\xff\xd9"
_SCAN, _RESTART_INTERVAL, _RESTART, _COMMENT = 0xDA, 0xDD, 0xD0, 0xFE  # markers of JPEG
_SEQUENTIAL = (0xC0, 0xC1)
_FRAMES = (*_SEQUENTIAL, 0xC2)
_REVERSED = 2  # the order of bits in a byte
_CONTIGUOUS = 1
_MAX_UINT16 = 65_535
_UNCOMPRESSED_MODE = 2  # an extension of Group 4 that few readers know
_JPEG_MODES: Mapping[int, str] = {
    PHOTOMETRIC.MINISWHITE: "L",
    PHOTOMETRIC.MINISBLACK: "L",
    PHOTOMETRIC.RGB: "RGB",
    PHOTOMETRIC.YCBCR: "RGB",
}


def embeddable(data: bytes, page: TiffPage) -> Tiles | None:
    """The compressed parts of a page of the file `data`. None if it has to be decoded, or may be damaged."""
    if page.compression == COMPRESSION.CCITT_T6:
        return _group4(data, page)
    return _jpeg(data, page) if page.compression == COMPRESSION.JPEG else None


def _group4(data: bytes, page: TiffPage) -> Tiles | None:
    """A page of one strip: strips of Group 4 cannot be joined."""
    size = page.imagewidth, page.imagelength
    is_bilevel = page.photometric in (PHOTOMETRIC.MINISWHITE, PHOTOMETRIC.MINISBLACK) and page.samplesperpixel == 1
    strips = _strips(data, page)
    if page.is_tiled or len(strips) != 1 or not is_bilevel or codec.bits(page) != 1:
        return None
    if page.tags.valueof("T6Options", 0) & _UNCOMPRESSED_MODE:
        return None
    strip = bytes(imagecodecs.bitorder_decode(strips[0])) if page.fillorder == _REVERSED else strips[0]
    return [(group4_stream(strip, size, black=int(page.photometric == PHOTOMETRIC.MINISWHITE)), (0, 0))]


def _jpeg(data: bytes, page: TiffPage) -> Tiles | None:
    """A page of gray or colored JPEG strips, which are joined if they can be, or tiles."""
    mode = _JPEG_MODES.get(page.photometric)
    bands = len(mode or "")
    tables = page.jpegtables or _START + _STOP
    if mode is None or page.samplesperpixel != bands or codec.bits(page) != 8:
        return None
    if bands > 1 and page.planarconfig != _CONTIGUOUS:
        return None
    transform = int(page.photometric == PHOTOMETRIC.YCBCR)
    boxes = _boxes(page)
    strips = _strips(data, page)
    if len(boxes) != len(strips):
        return None
    parts = [_complete(tables, strip, transform) for strip in strips]
    if any(_header(part) != (size, bands) for part, (size, _) in zip(parts, boxes, strict=True)):
        return None
    if len(parts) > 1 and not page.is_tiled and (joined := _join(parts, page.rowsperstrip, page.imagelength)):
        parts, boxes = [joined], [((page.imagewidth, page.imagelength), (0, 0))]
    inverted, profile = page.photometric == PHOTOMETRIC.MINISWHITE, codec.profile(page)
    return [
        (Stream(part, size, mode, "DCTDecode", inverted=inverted, icc_profile=profile), position)
        for part, (size, position) in zip(parts, boxes, strict=True)
    ]


def _strips(data: bytes, page: TiffPage) -> list[bytes]:
    """The compressed strips or tiles; none if one is beyond the end of the file."""
    places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    is_truncated = any(offset + size > len(data) for offset, size in places)
    return [] if is_truncated else [data[offset : offset + size] for offset, size in places]


def _boxes(page: TiffPage) -> list[tuple[Size, tuple[int, int]]]:
    """The size and position of each strip or tile. Tiles at the edges exceed the page."""
    width, height = page.imagewidth, page.imagelength
    if page.is_tiled:
        across, down = page.tilewidth, page.tilelength
        return [((across, down), (x, y)) for y in range(0, height, down) for x in range(0, width, across)]
    rows = min(page.rowsperstrip, height)
    return [((width, min(rows, height - y)), (0, y)) for y in range(0, height, rows)]


def _complete(tables: bytes, strip: bytes, transform: int) -> bytes:
    """A JPEG file of the tables and a strip. `transform`: 1 if the colors are YCbCr, which TIFF states in a tag."""
    adobe = b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, transform)
    parts = [_START, adobe]
    for stream in (tables, strip):
        position = len(_START)
        for code, start, end in read_segments(stream):
            parts.append(stream[position:start])  # entropy-coded data
            position = end
            if not (0xE0 <= code <= 0xEF or code in (_COMMENT, END)):
                parts.append(stream[start:end])
    return b"".join((*parts, _STOP))


def _header(jpeg: bytes) -> tuple[Size, int] | None:
    """The size and number of bands of a complete JPEG of 8 bits that all readers decode. None for others.

    Raises TooLarge for too many scans.
    """
    check_scans(jpeg)
    if inspect_coding(jpeg) != (True, True):
        return None
    start = next(start for code, start, _ in read_segments(jpeg) if code in _FRAMES)
    bits, height, width, bands = struct.unpack_from(">BHHB", jpeg, start + 4)
    return ((width, height), bands) if bits == 8 else None


def _join(parts: Sequence[bytes], rows: int, height: int) -> bytes | None:
    """JPEGs of `rows` rows as one, with a restart marker at each border. None if they differ in more than height."""
    first = {code: start for code, start, _ in read_segments(parts[0])}
    frame = next((first[code] for code in _SEQUENTIAL if code in first), None)
    if frame is None or _RESTART_INTERVAL in first or height > _MAX_UINT16:
        return None
    units, rest = _units(parts[0][frame : first[_SCAN]], rows)
    heads: set[bytes] = set()
    bodies = []
    for part in parts:
        ends = [end for code, _, end in read_segments(part) if code == _SCAN]
        # A strip with another header has other bytes at this position, or more of them.
        heads.add(part[: frame + 5] + struct.pack(">H", height) + part[frame + 7 : ends[0]] if len(ends) == 1 else b"")
        bodies.append(part[ends[0] : -len(_STOP)])
    if len(heads) > 1 or b"" in heads or rest or units > _MAX_UINT16:
        return None
    (head,) = heads
    interval = struct.pack(">BBHH", 0xFF, _RESTART_INTERVAL, 4, units)
    markers = (bytes((0xFF, _RESTART + number % 8)) for number in range(len(bodies) - 1))
    data = chain.from_iterable(zip(bodies, chain(markers, [_STOP]), strict=True))
    return b"".join((head[: first[_SCAN]], interval, head[first[_SCAN] :], *data))


def _units(frame: bytes, rows: int) -> tuple[int, int]:
    """The number of coding units in rows of an image, by its frame header; and the rows beyond whole units."""
    width, bands = struct.unpack_from(">HB", frame, 7)
    factors = frame[11 : 11 + 3 * bands : 3] if bands > 1 else b"\x11"
    across, down = (8 * max(factor >> shift & 15 for factor in factors) for shift in (4, 0))
    return -(-width // across) * (rows // down), rows % down
