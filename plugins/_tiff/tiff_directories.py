"""Reads TIFF directories, of which EXIF and most camera RAW formats consist; detects formats and truncation by them."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from engine import Content, once_per_file

Directory: TypeAlias = Mapping[int, tuple[int, ...] | bytes]
"""The tags of one directory: integers, or bytes for the types ASCII and undefined."""

SUBFILE = 254
WIDTH = 256
HEIGHT = 257
COMPRESSION = 259
PHOTOMETRIC = 262
MAKE = 271
MODEL = 272
SUB_DIRECTORIES = 330
DNG_VERSION = 50706
# Subfile types: a smaller version of another page, and a transparency mask.
REDUCED = 1
MASK = 4
STRIP_OFFSETS = 273
STRIP_BYTE_COUNTS = 279
PANASONIC_OFFSET = 280
TILE_OFFSETS = 324
TILE_BYTE_COUNTS = 325
_SEE_VENDOR_TAG = 0xFFFFFFFF  # strip offset of files that have it in a tag of the manufacturer
CFA = 32803
LINEAR_RAW = 34892
EXTRA_SAMPLES = 338  # what the channels besides the colors mean: 0 is unspecified
PLAIN_COLORS = range(4)  # values of PhotometricInterpretation: gray, RGB, palette
_NEXT = -1  # no tag: the offset of the next directory
# Bits, palette and kind of samples, strips and tiles.
_DESCRIPTION = (258, 320, 339, STRIP_OFFSETS, STRIP_BYTE_COUNTS, TILE_OFFSETS, TILE_BYTE_COUNTS)
MAX_PARTS = 1 << 16  # strips or tiles of a directory
# Samples per pixel, colors of a sensor's filter, Leaf's tag.
SAMPLES = 277
CFA_PATTERN = 33422
LEAF = 34310

# Format codes of integers, and bytes per value, by type. Other types have one byte per value.
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_MIN_SIZE = 14  # bytes of a header and an empty directory
_MAX_DIRECTORIES = 24
_MAX_ENTRIES = 512
_MAX_VALUES = 64


class Entry(NamedTuple):
    """An entry of a directory, with the offset of its values and their size in bytes, which may exceed the file."""

    tag: int
    kind: int
    length: int
    start: int
    size: int


@dataclass(frozen=True)
class Layout:
    """How a file stores directories: the format codes of byte order, number of entries, and length or offset."""

    order: str
    count: str
    offset: str
    first: int  # position of the offset of the first directory

    @property
    def entry(self) -> str:
        """Tag, type, and number of values. The values, or their offset, follow."""
        return f"{self.order}HH{self.offset}"

    @property
    def offset_size(self) -> int:
        return struct.calcsize(self.offset)

    @property
    def entry_size(self) -> int:
        return struct.calcsize(self.entry) + self.offset_size

    def read(self, code: str, data: bytes) -> int:
        """The integer at the start of `data`; 0 if it is too short."""
        size = struct.calcsize(code)
        return int(struct.unpack(self.order + code, data[:size])[0]) if len(data) >= size else 0

    def read_offset(self, content: Content, position: int) -> int:
        """The offset at a position; 0 beyond the end of the file."""
        return self.read(self.offset, content[position : position + self.offset_size])


def read_layout(content: Content) -> Layout | None:
    """The layout that the header of a TIFF file states. None if it is invalid."""
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < _MIN_SIZE:
        return None
    is_big = content[2:4] in (b"+\0", b"\0+")
    return Layout(order, "Q", "Q", 8) if is_big else Layout(order, "H", "I", 4)


def read_directories(content: Content, max_values: int = _MAX_VALUES) -> list[Directory]:
    """The chain of directories and their sub-directories, with the first values of each tag.

    Stops at invalid data without raising.
    """
    layout = read_layout(content)
    if layout is None:
        return []
    directories: list[Directory] = []
    seen: set[int] = set()
    pending = [layout.read_offset(content, layout.first)]
    while pending and len(directories) < _MAX_DIRECTORIES:
        offset = pending.pop(0)
        if offset in seen or not 8 <= offset < len(content) - 6:
            continue
        seen.add(offset)
        entries, next_offset = read_entries(content, offset, layout)
        directory = {entry.tag: read_values(content, entry, layout, max_values) for entry in entries}
        directories.append({**directory, _NEXT: (next_offset,)})
        pending += [sub for sub in directory.get(SUB_DIRECTORIES, ()) if isinstance(sub, int)]
        pending.append(next_offset)
    return directories


sniffed = once_per_file(read_directories)
"""The directories that sniffers read."""


def camera_make(directories: list[Directory]) -> bytes:
    """The manufacturer of the camera, in upper case; empty if unknown."""
    return _name(directories, MAKE)


def camera_model(directories: list[Directory]) -> bytes:
    """The model of the camera, in upper case; empty if unknown."""
    return _name(directories, MODEL)


def _name(directories: list[Directory], tag: int) -> bytes:
    value = directories[0].get(tag, b"") if directories else b""
    return value.strip(b"\0 ").upper() if isinstance(value, bytes) else b""


def holds_sensor_data(directories: list[Directory]) -> bool:
    """Whether a directory describes RAW sensor data."""
    return any(
        directory.get(PHOTOMETRIC) in ((CFA,), (LINEAR_RAW,))
        or directory.get(COMPRESSION) in ((32767,), (34713,))
        or (directory.get(SAMPLES, (1,)) == (1,) and not directory.keys().isdisjoint((CFA_PATTERN, LEAF)))
        for directory in directories
    )


def holds_only_thumbnails(directories: list[Directory]) -> bool:
    """Whether every directory with an image describes a smaller version of another one."""
    images = [directory for directory in directories if _area(directory)]
    return bool(images) and all(_is_reduced(directory) for directory in images)


def unknown_channels(directories: list[Directory]) -> int:
    """The number of channels besides the colors whose meaning is not specified, of the image that has most.

    A single one beside gray, RGB or a palette is none of them: it is taken as transparency.
    """
    images = (directory for directory in directories if not _is_reduced(directory))
    extras = ((directory.get(EXTRA_SAMPLES, ()), directory.get(PHOTOMETRIC) or (None,)) for directory in images)
    return max(
        (kinds.count(0) for kinds, (color, *_) in extras if kinds != (0,) or color not in PLAIN_COLORS), default=0
    )


def hides_image(directories: list[Directory]) -> bool:
    """Whether the first directory is a thumbnail, and the image another one."""
    return bool(directories) and _is_reduced(directories[0]) and declared_area(directories) > _area(directories[0])


def declared_area(directories: list[Directory]) -> int:
    """The number of pixels of the largest image that is no thumbnail; 0 if there is none."""
    return max((_area(directory) for directory in directories if not _is_reduced(directory)), default=0)


def _area(directory: Directory) -> int:
    width, height = directory.get(WIDTH, ()), directory.get(HEIGHT, ())
    return int(width[0]) * int(height[0]) if width and height else 0


def _is_reduced(directory: Directory) -> bool:
    value = directory.get(SUBFILE, ())
    return bool(value) and bool(int(value[0]) & REDUCED)


def is_truncated(content: Content, directories: list[Directory]) -> bool:
    """Whether a strip or a tile of the directories ends beyond the end of the file."""
    for directory in directories:
        strips = directory.get(STRIP_OFFSETS, ())
        tiles = directory.get(TILE_OFFSETS, ())
        if strips in ((), (_SEE_VENDOR_TAG,)):
            strips = directory.get(PANASONIC_OFFSET, ())
        for offsets, sizes in ((strips, STRIP_BYTE_COUNTS), (tiles, TILE_BYTE_COUNTS)):
            parts = zip(offsets, directory.get(sizes, ()), strict=False)
            if any(offset + size > len(content) for offset, size in parts):
                return True
    return False


def lacks_pages(content: Content, directories: list[Directory]) -> bool:
    """Whether the next page lies beyond the end of the file."""
    return any(offset >= len(content) for directory in directories for offset in directory[_NEXT])


def is_complete(content: Content) -> bool:
    """Whether the first strips of all directories are complete."""
    return not is_truncated(content, read_directories(content))


def is_whole(content: Content, directories: list[Directory]) -> bool:
    """Whether the file has what describes the pixels of the directories, and strips and tiles that are compressed.

    Decoders notice that others are missing, but ignore a size of them that is wrong. A file of a camera, which could be
    the start of camera RAW, has its sub-directories, too.
    """
    offsets = (offset for one in directories for offset in one.get(SUB_DIRECTORIES, ()))
    if camera_make(directories) and any(offset >= len(content) for offset in offsets):
        return False
    compressed = [directory for directory in directories if directory.get(COMPRESSION) != (1,)]
    is_described = all(directory.get(tag) != () for directory in directories for tag in _DESCRIPTION)
    return is_described and not is_truncated(content, compressed)


def read_entries(content: Content, offset: int, layout: Layout) -> tuple[list[Entry], int]:
    """The entries of the directory at an offset, and the offset of the next directory; 0 if there is none."""
    start = offset + struct.calcsize(layout.count)
    count = min(layout.read(layout.count, content[offset:start]), _MAX_ENTRIES)
    end = start + layout.entry_size * count
    table = content[start:end]
    entries: list[Entry] = []
    for position in range(0, len(table) - layout.entry_size + 1, layout.entry_size):
        tag, kind, length = struct.unpack_from(layout.entry, table, position)
        size = length * _SIZES.get(kind, 1)
        field = start + position + struct.calcsize(layout.entry)
        value = field if size <= layout.offset_size else layout.read_offset(content, field)
        entries.append(Entry(tag, kind, length, value, size))
    return entries, layout.read_offset(content, end)


def read_values(
    content: Content, entry: Entry, layout: Layout, max_values: int = _MAX_VALUES
) -> tuple[int, ...] | bytes:
    """The first values of an entry: integers, or bytes for other types. Empty if they are not in the file."""
    count = min(entry.length, max_values)
    code = _INTEGERS.get(entry.kind)
    if code is None:
        return content[entry.start : entry.start + count]
    data = content[entry.start : entry.start + count * struct.calcsize(code)]
    return struct.unpack(f"{layout.order}{count}{code}", data) if len(data) == count * struct.calcsize(code) else ()
