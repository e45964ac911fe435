"""Reads TIFF directories to detect formats and truncation. Most camera RAW formats are based on TIFF."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

from engine import Content

Directory: TypeAlias = Mapping[int, tuple[int, ...] | bytes]
"""The tags of one directory: integers, or bytes for the types ASCII and undefined."""

MAKE, COMPRESSION, PHOTOMETRIC, SUB_DIRECTORIES, DNG_VERSION = 271, 259, 262, 330, 50706
STRIP_OFFSETS, STRIP_BYTE_COUNTS, PANASONIC_OFFSET = 273, 279, 280
_SEE_VENDOR_TAG = 0xFFFFFFFF  # strip offset of files that have it in a tag of the manufacturer
CFA, LINEAR_RAW = 32803, 34892

_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I"}
_MAX_DIRECTORIES, _MAX_ENTRIES, _MAX_VALUES = 24, 512, 64


def read_directories(content: Content) -> list[Directory]:
    """The chain of directories and their sub-directories. Stops at invalid data without raising."""
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 8:
        return []
    directories: list[Directory] = []
    seen: set[int] = set()
    pending = [struct.unpack_from(order + "I", content[4:8])[0]]
    while pending and len(directories) < _MAX_DIRECTORIES:
        offset = pending.pop(0)
        if offset in seen or not 8 <= offset < len(content) - 6:
            continue
        seen.add(offset)
        directory, next_offset = _read_directory(content, offset, order)
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


def _read_directory(content: Content, offset: int, order: str) -> tuple[Directory, int]:
    (count,) = struct.unpack(order + "H", content[offset : offset + 2])
    count = min(count, _MAX_ENTRIES)
    table = content[offset + 2 : offset + 2 + 12 * count]
    tags: dict[int, tuple[int, ...] | bytes] = {}
    for start in range(0, len(table) - 11, 12):
        tag, kind, length = struct.unpack_from(order + "HHI", table, start)
        tags[tag] = _values(content, table[start + 8 : start + 12], kind, min(length, _MAX_VALUES), order)
    tail = content[offset + 2 + 12 * count : offset + 6 + 12 * count]
    return tags, struct.unpack(order + "I", tail)[0] if len(tail) == 4 else 0


def _values(content: Content, field: bytes, kind: int, count: int, order: str) -> tuple[int, ...] | bytes:
    code = _INTEGERS.get(kind, "s")
    size = count * struct.calcsize(code)
    if size > 4:
        (offset,) = struct.unpack(order + "I", field)
        field = content[offset : offset + size]
    if code == "s":
        return field[:size]
    return struct.unpack(f"{order}{count}{code}", field[:size]) if len(field) >= size else ()
