"""Adds an ICC profile, EXIF and XMP to a still AVIF file (ISO/IEC 23008-12), because imagecodecs writes none."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from plugins import _exif

_PICTURE = 1  # the first item of a file of libavif
_VERSION = 4  # bytes of version and flags at the start of the content of a box
_ITEM_COUNT, _LOCATION_COUNT = _VERSION, _VERSION + 2  # offsets in iinf and iloc
_LOCATION = ">HHHII"  # an entry of iloc: item, file, number of extents (1), offset and length
_FIRST_ASSOCIATIONS = _VERSION + 6  # offset in ipma of the number of properties of the first item


def add_metadata(data: bytes, icc_profile: bytes | None, exif: bytes | None, xmp: bytes | None) -> bytes:
    """`data` with metadata. It must be a file of libavif: one extent per item, offsets of 4 bytes, no metadata."""
    contents = []
    if exif:
        # Four bytes for the offset of the TIFF header in the rest.
        contents.append((b"Exif\0", b"\0\0\0\0" + exif.removeprefix(_exif.PREFIX)))
    if xmp:
        contents.append((b"mime\0application/rdf+xml\0", xmp))
    file = dict(_read_boxes(data))
    boxes = dict(_read_boxes(file[b"meta"][_VERSION:]))
    if icc_profile:
        boxes[b"iprp"] = _with_profile(boxes[b"iprp"], icc_profile)
    (count,) = struct.unpack_from(">H", boxes[b"iinf"], _ITEM_COUNT)
    for number, (kind, _) in enumerate(contents, count + 1):
        entry = _box(b"infe", struct.pack(">IHH", 2 << 24, number, 0) + kind)
        boxes[b"iinf"] = _append(boxes[b"iinf"], _ITEM_COUNT, entry)
        reference = _box(b"cdsc", struct.pack(">HHH", number, 1, _PICTURE))
        boxes[b"iref"] = boxes.get(b"iref", bytes(_VERSION)) + reference
    size = struct.calcsize(_LOCATION)
    new_size = _VERSION + sum(8 + len(content) for content in boxes.values()) + size * len(contents)
    growth = new_size - len(file[b"meta"])
    locations = boxes[b"iloc"][_LOCATION_COUNT + 2 :]
    moved = (
        struct.pack(_LOCATION, item, source, extents, offset + growth, length)
        for item, source, extents, offset, length in struct.iter_unpack(_LOCATION, locations)
    )
    boxes[b"iloc"] = boxes[b"iloc"][: _LOCATION_COUNT + 2] + b"".join(moved)
    end = len(data) + growth + 8
    for number, (_, content) in enumerate(contents, count + 1):
        location = struct.pack(_LOCATION, number, 0, 1, end, len(content))
        boxes[b"iloc"] = _append(boxes[b"iloc"], _LOCATION_COUNT, location)
        end += len(content)
    file[b"meta"] = bytes(_VERSION) + b"".join(_box(kind, content) for kind, content in boxes.items())
    added = [_box(b"mdat", b"".join(content for _, content in contents))] if contents else []
    return b"".join([*(_box(kind, content) for kind, content in file.items()), *added])


def _with_profile(properties: bytes, icc_profile: bytes) -> bytes:
    """The content of iprp with the profile as a property of the picture."""
    boxes = dict(_read_boxes(properties))
    index = 1 + sum(1 for _ in _read_boxes(boxes[b"ipco"]))
    boxes[b"ipco"] += _box(b"colr", b"prof" + icc_profile)
    associations = bytearray(boxes[b"ipma"])
    associations[_FIRST_ASSOCIATIONS] += 1
    associations.insert(_FIRST_ASSOCIATIONS + 1, index)
    boxes[b"ipma"] = bytes(associations)
    return b"".join(_box(kind, content) for kind, content in boxes.items())


def _read_boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The type and content of each box."""
    start = 0
    while start < len(data):
        end = start + int.from_bytes(data[start : start + 4])
        yield data[start + 4 : start + 8], data[start + 8 : end]
        start = end


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def _append(content: bytes, count_offset: int, entry: bytes) -> bytes:
    """A list with a 16-bit count, and one more entry."""
    (count,) = struct.unpack_from(">H", content, count_offset)
    return content[:count_offset] + struct.pack(">H", count + 1) + content[count_offset + 2 :] + entry
