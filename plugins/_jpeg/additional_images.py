"""Images after the first one in a JPEG file: gain maps, and others of multi-picture files (CIPA DC-007)."""

import struct
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TypeAlias

from engine import FidelityWarning, warn_gain_map_lost
from plugins._tiff import tiff_directories

Segments: TypeAlias = Iterator[tuple[int, int, int]]
"""The marker, start and end of each segment."""

Images: TypeAlias = list[tuple[int, list[bytes]]]
"""The position of each image, and the bodies of its segments before the scan."""

_START = b"\xff\xd8"
_AFTER_HEADER = (0xD9, 0xDA)  # markers: the end of the image, a scan
_INDEX = b"MPF\0"
_MAX_IMAGES, _MAX_HEADER = 16, 1 << 18  # entries of an index that are read, bytes of each image
_ENTRIES, _ENTRY_SIZE = 0xB002, 16
_KIND, _PREVIEWS = 0xFFFFFF, (0x010001, 0x010002)  # kinds of images in their attributes; previews of VGA and Full HD
# Names of gain maps: of Adobe and Google, of Apple, and of ISO 21496-1.
_GAIN_MAP = (
    b"http://ns.adobe.com/hdr-gain-map/1.0/",
    b"urn:com:apple:photo:2020:aux:hdrgainmap",
    b"urn:iso:std:iso:ts:21496:-1\0",
)
_AUXILIARY = b"AuxiliaryImageType"  # Apple writes it in the XMP of depth maps and mattes.


def warn_of_lost(others: Images, *, gain_map: bool = True) -> None:
    """Warns that another image after the first one is lost, or a `gain_map`."""
    images = [header for _, header in others if not _mentions(header, *_GAIN_MAP)]
    if gain_map and len(images) < len(others):
        warn_gain_map_lost()
    count = sum(not _mentions(image, _AUXILIARY) for image in images)
    if count:
        FidelityWarning.issue("pictures_dropped", f"Only the first of {count + 1} images in the file was converted.")


def find_gain_map(others: Images) -> tuple[int, list[bytes]] | None:
    """The gain map among the images, if there is one."""
    return next((other for other in others if _mentions(other[1], *_GAIN_MAP)), None)


def find_others(data: bytes, read_segments: Callable[[bytes], Segments]) -> Images:
    """The images after the first one that are no previews."""
    header = _header(data, read_segments)
    index = next((body.removeprefix(_INDEX) for body in header if body.startswith(_INDEX)), b"")
    positions = _positions(data, data.find(index), index)
    others = [(start, _header(data[start : start + _MAX_HEADER], read_segments)) for start in positions]
    if not others and _mentions(header, *_GAIN_MAP):
        *_, (_, _, end) = read_segments(data)
        if data.startswith(_START, end):
            return [(end, _header(data[end : end + _MAX_HEADER], read_segments))]
    return others


def _header(data: bytes, read_segments: Callable[[bytes], Segments]) -> list[bytes]:
    """The bodies of the segments before the first scan."""
    segments = takewhile(lambda segment: segment[0] not in _AFTER_HEADER, read_segments(data))
    return [data[start + 4 : end] for _, start, end in segments]


def _mentions(header: list[bytes], *names: bytes) -> bool:
    return any(name in body for body in header for name in names)


def _positions(data: bytes, base: int, index: bytes) -> Iterator[int]:
    """Where the images after the first one start that are no previews. Offsets in the index count from `base`."""
    directories = tiff_directories.read_directories(index, _MAX_IMAGES * _ENTRY_SIZE)
    entries = directories[0].get(_ENTRIES, b"") if directories else b""
    order = ">" if index.startswith(b"MM") else "<"
    for position in range(_ENTRY_SIZE, len(entries) - _ENTRY_SIZE + 1, _ENTRY_SIZE):
        kind, _, offset = struct.unpack_from(f"{order}3I", bytes(entries), position)
        if kind & _KIND not in _PREVIEWS and data.startswith(_START, base + offset):
            yield base + offset
