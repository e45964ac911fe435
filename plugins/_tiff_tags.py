"""Reads TIFF directories to detect formats and truncation. Most camera RAW formats are based on TIFF."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from engine import Content

Directory: TypeAlias = Mapping[int, tuple[int, ...] | bytes]
"""The tags of one directory: integers, or bytes for the types ASCII and undefined."""

SUBFILE, WIDTH, HEIGHT, COMPRESSION, PHOTOMETRIC, MAKE = 254, 256, 257, 259, 262, 271
SUB_DIRECTORIES, DNG_VERSION = 330, 50706
REDUCED, MASK = 1, 4  # subfile types: a smaller version of another page, and a transparency mask
STRIP_OFFSETS, STRIP_BYTE_COUNTS, PANASONIC_OFFSET = 273, 279, 280
_SEE_VENDOR_TAG = 0xFFFFFFFF  # strip offset of files that have it in a tag of the manufacturer
CFA, LINEAR_RAW = 32803, 34892

_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_MAX_DIRECTORIES, _MAX_ENTRIES, _MAX_VALUES = 24, 512, 64


@dataclass(frozen=True)
class _Layout:
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


def _layout(content: Content) -> _Layout | None:
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 16:
        return None
    is_big = content[2:4] in (b"+\0", b"\0+")
    return _Layout(order, "Q", "Q", 8) if is_big else _Layout(order, "H", "I", 4)


def read_directories(content: Content, max_values: int = _MAX_VALUES) -> list[Directory]:
    """The chain of directories and their sub-directories, with the first values of each tag.

    Stops at invalid data without raising.
    """
    layout = _layout(content)
    if layout is None:
        return []
    directories: list[Directory] = []
    seen: set[int] = set()
    pending = [layout.read(layout.offset, content[layout.first : layout.first + layout.offset_size])]
    while pending and len(directories) < _MAX_DIRECTORIES:
        offset = pending.pop(0)
        if offset in seen or not 8 <= offset < len(content) - 6:
            continue
        seen.add(offset)
        directory, next_offset = _read_directory(content, offset, layout, max_values)
        directories.append(directory)
        pending += [sub for sub in directory.get(SUB_DIRECTORIES, ()) if isinstance(sub, int)]
        pending.append(next_offset)
    return directories


def camera_make(directories: list[Directory]) -> bytes:
    """The manufacturer of the camera, in upper case; empty if unknown."""
    value = directories[0].get(MAKE, b"") if directories else b""
    return value.strip(b"\0 ").upper() if isinstance(value, bytes) else b""


def holds_sensor_data(directories: list[Directory]) -> bool:
    """Whether a directory describes RAW sensor data."""
    return any(
        directory.get(PHOTOMETRIC) in ((CFA,), (LINEAR_RAW,)) or directory.get(COMPRESSION) in ((32767,), (34713,))
        for directory in directories
    )


def holds_only_thumbnails(directories: list[Directory]) -> bool:
    """Whether every directory with a picture describes a smaller version of another one."""
    pictures = [directory for directory in directories if _area(directory)]
    return bool(pictures) and all(_is_reduced(directory) for directory in pictures)


def hides_picture(directories: list[Directory]) -> bool:
    """Whether the first directory is a thumbnail, and the picture another one."""
    return bool(directories) and _is_reduced(directories[0]) and declared_area(directories) > _area(directories[0])


def declared_area(directories: list[Directory]) -> int:
    """The number of pixels of the largest picture that is no thumbnail; 0 if there is none."""
    return max((_area(directory) for directory in directories if not _is_reduced(directory)), default=0)


def _area(directory: Directory) -> int:
    width, height = directory.get(WIDTH, ()), directory.get(HEIGHT, ())
    return int(width[0]) * int(height[0]) if width and height else 0


def _is_reduced(directory: Directory) -> bool:
    value = directory.get(SUBFILE, ())
    return bool(value) and bool(int(value[0]) & REDUCED)


def is_truncated(content: Content, directories: list[Directory]) -> bool:
    """Whether more than 1 % of a strip lies beyond the end of the file."""
    for directory in directories:
        offsets, counts = directory.get(STRIP_OFFSETS, ()), directory.get(STRIP_BYTE_COUNTS, ())
        if offsets in ((), (_SEE_VENDOR_TAG,)):
            offsets = directory.get(PANASONIC_OFFSET, ())
        if any(offset + size - size // 100 > len(content) for offset, size in zip(offsets, counts, strict=False)):
            return True
    return False


def is_complete(content: Content) -> bool:
    """Whether the first strips of all directories are complete."""
    return not is_truncated(content, read_directories(content))


def _read_directory(content: Content, offset: int, layout: _Layout, max_values: int) -> tuple[Directory, int]:
    start = offset + struct.calcsize(layout.count)
    count = min(layout.read(layout.count, content[offset:start]), _MAX_ENTRIES)
    end = start + layout.entry_size * count
    table = content[start:end]
    tags: dict[int, tuple[int, ...] | bytes] = {}
    for position in range(0, len(table) - layout.entry_size + 1, layout.entry_size):
        tag, kind, length = struct.unpack_from(layout.entry, table, position)
        field = table[position + struct.calcsize(layout.entry) : position + layout.entry_size]
        tags[tag] = _values(content, field, kind, min(length, max_values), layout)
    return tags, layout.read(layout.offset, content[end : end + layout.offset_size])


def _values(content: Content, field: bytes, kind: int, count: int, layout: _Layout) -> tuple[int, ...] | bytes:
    code = _INTEGERS.get(kind, "s")
    size = count * struct.calcsize(code)
    if size > layout.offset_size:
        offset = layout.read(layout.offset, field)
        field = content[offset : offset + size]
    if code == "s":
        return field[:size]
    return struct.unpack(f"{layout.order}{count}{code}", field[:size]) if len(field) >= size else ()
