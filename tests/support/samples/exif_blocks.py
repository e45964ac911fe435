"""EXIF blocks with values of every type and encoding, and a reader of their stored bytes that is independent."""

import struct
from io import BytesIO
from typing import NamedTuple, TypeAlias

from PIL.TiffTags import ASCII, BYTE

from tests.support.samples.generated import quadrants
from tests.support.samples.raw_parts import Entry, ifd, longs, octets, pointer, rationals, shorts, sub_ifd

ORIENTATION, EXPOSURE, GPS, INTEROPERABILITY, MAKER_NOTE = 0x0112, 0x8769, 0x8825, 0xA005, 0x927C
_HEADER = 8  # bytes
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 9: 4, 10: 8}  # bytes per value, by type

Tags: TypeAlias = dict[tuple[int, int], "Stored"]
"""The stored values by the tag of the directory, 0 for the first and 1 for the preview's, and the tag."""


class Stored(NamedTuple):
    kind: int
    number: int
    data: bytes
    position: int


def texts(encoding: str) -> list[Entry]:
    """Texts of the first directory, in an encoding that EXIF does not declare."""
    return [
        octets(0x010E, "Café à l'été, ½ ÆØÅ".encode(encoding) + b"\0", ASCII),
        octets(0x010F, b"Maker\0", ASCII),
        octets(0x0110, b"Model without an end", ASCII),
        octets(0x0131, "Größe\0\0".encode(encoding), ASCII),
        octets(0x0132, b"2024:05:01 12:00:00\0", ASCII),
        octets(0x013B, "Jürgen Müller".encode(encoding) + b"\0", ASCII),
        octets(0x8298, "© 2024 Jürgen Müller\0© Éditeur\0".encode(encoding), ASCII),
        octets(0x9C9C, "Kommentar ü €\0".encode("utf-16-le"), BYTE),
    ]


def exif_block(
    order: str, encoding: str = "utf-8", *, comment: bytes = b"UNICODE\0\0\xfc\0\xe4", orientation: int = 1
) -> bytes:
    """An EXIF block with directories for exposure, position and interoperability, maker notes and a preview."""
    thumbnail = BytesIO()
    quadrants((40, 30)).save(thumbnail, "JPEG")
    exposure = [
        rationals(0x829A, (1, 250)),
        shorts(0x8827, 400),
        octets(0x9000, b"0232"),
        octets(0x9003, b"2024:05:01 12:00:00\0", ASCII),
        rationals(0x9204, (-1, 3), type_=10),
        octets(MAKER_NOTE, bytes(range(99))),
        octets(0x9286, comment),
        longs(0xA002, 4000),
        shorts(0xA003, 3000),
        octets(0xA430, "Bézier".encode(encoding) + b"\0", ASCII),
        octets(0xA431, b"BODY-12345\0", ASCII),
        octets(0xA434, "Objektiv für 50 mm".encode(encoding) + b"\0", ASCII),
        sub_ifd(INTEROPERABILITY, [octets(1, b"R98\0", ASCII)]),
    ]
    position = [octets(1, b"N\0", ASCII), rationals(2, (51, 1), (30, 1), (0, 1)), octets(0x1B, b"ASCII\0\0\0GPS")]
    main = [
        *texts(encoding),
        shorts(ORIENTATION, orientation),
        rationals(0x011A, (300, 1)),
        shorts(0x0128, 2),
        sub_ifd(EXPOSURE, exposure),
        sub_ifd(GPS, position),
    ]
    following = _HEADER + len(ifd(main, _HEADER, order))
    start = following + 2 + 3 * 12 + 4
    data = thumbnail.getvalue()
    address = struct.pack(f"{order}I", start)
    preview = ifd([shorts(0x0103, 6), pointer(0x0201, address), longs(0x0202, len(data))], following, order)
    mark = b"II*\0" if order == "<" else b"MM\0*"
    head = b"Exif\0\0" + mark + struct.pack(f"{order}I", _HEADER)
    return head + ifd(main, _HEADER, order, next_at=following) + preview + data


def read_tags(data: bytes) -> Tags:
    """The tags of the first TIFF structure in a file. Values of directories are left out; positions are in it."""
    starts = [data.find(mark) for mark in (b"II*\0", b"MM\0*")]
    start = min(found for found in starts if found >= 0)
    block = data[start:]
    order = "<" if block.startswith(b"II") else ">"
    tags: Tags = {}
    (first,) = struct.unpack_from(f"{order}I", block, 4)
    following = _read_directory(block, order, first, 0, tags)
    if following:
        _read_directory(block, order, following, 1, tags)
    return tags


def _read_directory(block: bytes, order: str, offset: int, parent: int, tags: Tags) -> int:
    (count,) = struct.unpack_from(f"{order}H", block, offset)
    for entry in range(offset + 2, offset + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", block, entry)
        (value,) = struct.unpack_from(f"{order}I", block, entry + 8)
        size = number * _SIZES.get(kind, 1)
        start = entry + 8 if size <= 4 else value
        if tag in (EXPOSURE, GPS, INTEROPERABILITY):
            _read_directory(block, order, value, tag, tags)
        else:
            tags[parent, tag] = Stored(kind, number, block[start : start + size], start)
    (following,) = struct.unpack_from(f"{order}I", block, offset + 2 + 12 * count)
    return int(following)
