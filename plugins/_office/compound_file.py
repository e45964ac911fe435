"""Compound files (OLE2), the containers of the formats of Office before 2007: their streams by name.

Damaged structures have no effect but missing streams: LibreOffice reports damage.
"""

import struct
from collections.abc import Iterator

from engine import Content, once_per_file

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_ENTRY = struct.Struct("<64sHBxIII36xI8x")  # name, its length, kind, neighbors, child and first sector
_MAX_SECTORS = 4096
# Exponents of 2.
_MIN_SECTOR = 9
_MAX_SECTOR = 16
_LISTED_TABLES = 109  # sectors of the allocation table that the header lists
_LAST = 0xFFFFFFFA  # higher numbers are no sectors
_STREAM = 2


class CompoundFile:
    """The directory of a compound file. `streams` are the first sectors of the streams at its top, by name.

    `readable` is False if the directory lies outside the file, as in one that is truncated.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        header = content[:512].ljust(512, b"\0")
        self._sector_size = 1 << min(max(int.from_bytes(header[30:32], "little"), _MIN_SECTOR), _MAX_SECTOR)
        self._tables = struct.unpack_from(f"<{_LISTED_TABLES}I", header, 76)
        directory = b"".join(self._sectors(int.from_bytes(header[48:52], "little")))
        self.readable = bool(directory)
        self.streams = dict(_top_streams(directory))

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a stream of at least 4096 bytes, which are stored in sectors of their own."""
        data = b""
        for sector in self._sectors(self.streams.get(name, _LAST)):
            data += sector
            if len(data) >= size:
                break
        return data[:size]

    def _sectors(self, number: int) -> Iterator[bytes]:
        """The sectors of a chain that begins with this number, as far as they are in the file."""
        per_table = self._sector_size // 4
        for _ in range(_MAX_SECTORS):
            sector = self._sector(number)
            if not sector or number // per_table >= _LISTED_TABLES:
                return
            yield sector
            table = self._sector(self._tables[number // per_table])
            position = number % per_table * 4
            number = int.from_bytes(table[position : position + 4].ljust(4, b"\xff"), "little")

    def _sector(self, number: int) -> bytes:
        if number >= _LAST:
            return b""
        start = (number + 1) * self._sector_size
        return self._content[start : start + self._sector_size]


sniffed = once_per_file(CompoundFile)
"""The compound file that sniffers read."""


def _top_streams(directory: bytes) -> Iterator[tuple[str, int]]:
    """The names and first sectors of the streams that are in no storage: the tree below the root, the first entry."""
    entries = [directory[start : start + _ENTRY.size] for start in range(0, len(directory), _ENTRY.size)]
    pending = [_ENTRY.unpack(entries[0])[5]] if entries and len(entries[0]) == _ENTRY.size else []
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number in seen or number >= len(entries) or len(entries[number]) < _ENTRY.size:
            continue
        seen.add(number)
        name, length, kind, left, right, _, first = _ENTRY.unpack(entries[number])
        pending += (left, right)
        if kind == _STREAM:
            yield name[: max(min(length, 64) - 2, 0)].decode("utf-16-le", "replace"), first
