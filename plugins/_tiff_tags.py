"""TIFF directories, read as far as recognition needs: camera RAW files are TIFFs, or nearly."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

from engine import Content

Directory: TypeAlias = Mapping[int, tuple[int, ...] | bytes]
"""Tags of one directory: integers, or bytes where the type is ASCII or undefined."""

MAKE, COMPRESSION, PHOTOMETRIC, SUB_DIRECTORIES, DNG_VERSION = 271, 259, 262, 330, 50706
STRIP_OFFSETS, STRIP_BYTE_COUNTS, PANASONIC_OFFSET = 273, 279, 280
_ELSEWHERE = 0xFFFFFFFF  # the strip's offset where a maker's own tag tells it
CFA, LINEAR_RAW = 32803, 34892

_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I"}
_MAX_DIRECTORIES, _MAX_ENTRIES, _MAX_VALUES = 24, 512, 64


def directories(content: Content) -> list[Directory]:
    """The first directory, those behind it, and the sub-directories of each. Never raises on broken files."""
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 8:
        return []
    found: list[Directory] = []
    seen: set[int] = set()
    waiting = [struct.unpack_from(order + "I", content[4:8])[0]]
    while waiting and len(found) < _MAX_DIRECTORIES:
        offset = waiting.pop(0)
        if offset in seen or not 8 <= offset < len(content) - 6:
            continue
        seen.add(offset)
        directory, following = _directory(content, offset, order)
        found.append(directory)
        waiting += [sub for sub in directory.get(SUB_DIRECTORIES, ()) if isinstance(sub, int)]
        waiting.append(following)
    return found


def make(found: list[Directory]) -> bytes:
    """The camera's maker as the first directory spells it, in capitals."""
    value = found[0].get(MAKE, b"") if found else b""
    return value.strip(b"\0 ").upper() if isinstance(value, bytes) else b""


def holds_sensor_data(found: list[Directory]) -> bool:
    """Whether a directory describes the pixels of a sensor rather than a picture."""
    return any(
        directory.get(PHOTOMETRIC) in ((CFA,), (LINEAR_RAW,)) or directory.get(COMPRESSION) in ((32767,), (34713,))
        for directory in found
    )


def is_cut_off(content: Content, found: list[Directory]) -> bool:
    """Whether a strip that a directory promises lies, by more than a hundredth, behind the end of the file."""
    for directory in found:
        offsets, counts = directory.get(STRIP_OFFSETS, ()), directory.get(STRIP_BYTE_COUNTS, ())
        if offsets in ((), (_ELSEWHERE,)):
            offsets = directory.get(PANASONIC_OFFSET, ())
        if any(offset + size - size // 100 > len(content) for offset, size in zip(offsets, counts, strict=False)):
            return True
    return False


def is_complete(content: Content) -> bool:
    """Whether the directories of a file and their first strips are all there."""
    return not is_cut_off(content, directories(content))


def _directory(content: Content, offset: int, order: str) -> tuple[Directory, int]:
    (count,) = struct.unpack(order + "H", content[offset : offset + 2])
    count = min(count, _MAX_ENTRIES)
    table = content[offset + 2 : offset + 2 + 12 * count]
    tags: dict[int, tuple[int, ...] | bytes] = {}
    for at in range(0, len(table) - 11, 12):
        tag, kind, length = struct.unpack_from(order + "HHI", table, at)
        tags[tag] = _values(content, table[at + 8 : at + 12], kind, min(length, _MAX_VALUES), order)
    tail = content[offset + 2 + 12 * count : offset + 6 + 12 * count]
    return tags, struct.unpack(order + "I", tail)[0] if len(tail) == 4 else 0


def _values(content: Content, field: bytes, kind: int, count: int, order: str) -> tuple[int, ...] | bytes:
    code = _INTEGERS.get(kind, "s")
    size = count * struct.calcsize(code)
    if size > 4:
        (at,) = struct.unpack(order + "I", field)
        field = content[at : at + size]
    if code == "s":
        return field[:size]
    return struct.unpack(f"{order}{count}{code}", field[:size]) if len(field) >= size else ()
