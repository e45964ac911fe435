"""Compound files (OLE2), the containers of the formats of Office before 2007: the names of their streams.

Damaged structures have no effect but missing streams: LibreOffice reports damage, but fills a stream that is cut off.
"""

import struct
from collections.abc import Iterator, Sequence

from engine import Content, once_per_file

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_ENTRY = struct.Struct("<64sHBxIII36xII4x")  # name, its length, kind, neighbors, child, first sector and size
_MAX_SIZE = 1 << 21  # bytes of a directory
# Exponents of 2.
_MIN_SECTOR = 9
_MAX_SECTOR = 16
_LISTED_TABLES = 109  # sectors of the allocation table that the header lists
_LAST = 0xFFFFFFFA  # higher numbers are no sectors
_STREAM = 2
_ROOT = 5  # its stream has the sectors of small streams


class CompoundFile:
    """The directory of a compound file. `streams` are the names of the streams at its top.

    `readable` is False if the directory lies outside the file, as in one that is truncated.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        header = content[:512].ljust(512, b"\0")
        self._sector_size = 1 << min(max(int.from_bytes(header[30:32], "little"), _MIN_SECTOR), _MAX_SECTOR)
        self._small, self._small_table = struct.unpack_from("<II", header, 56)  # streams of fewer bytes share sectors
        self._tables = struct.unpack_from(f"<{_LISTED_TABLES}I", header, 76)
        self._directory = list(self._chain(int.from_bytes(header[48:52], "little")))
        directory = b"".join(map(self._sector, self._directory))
        self.readable = bool(directory)
        self._entries = list(_ENTRY.iter_unpack(directory[: len(directory) // _ENTRY.size * _ENTRY.size]))
        self.streams = frozenset(self._top_streams())

    @property
    def is_complete(self) -> bool:
        """Whether the file has the sectors of its streams, of each as far as it is used."""
        streams = [
            (first, size)
            for _, _, kind, *_, first, size in self._entries
            if kind == _ROOT or (kind == _STREAM and size >= self._small)
        ]
        if not self.readable or sum(size for _, size in streams) > len(self._content):
            return False
        tables = [number for number in (*self._tables, *self._chain(self._small_table)) if number < _LAST]
        return self._has(tables + self._directory) and all(
            self._has([*self._chain(first, size)], size) for first, size in streams
        )

    def _has(self, numbers: Sequence[int], size: int = 0) -> bool:
        """Whether the sectors are in the file, the last one as far as a stream of this size uses it."""
        ends = [(number + 2) * self._sector_size for number in numbers]
        ends[-1:] = [end - -size % self._sector_size for end in ends[-1:]]
        return max(ends, default=0) <= len(self._content)

    def _chain(self, number: int, size: int = _MAX_SIZE) -> Iterator[int]:
        """The numbers of the sectors of a stream of at most this size, from the first one."""
        per_table = self._sector_size // 4
        for _ in range(0, size, self._sector_size):
            if number >= _LAST:
                return
            yield number
            index, entry = divmod(number, per_table)
            table = self._sector(self._tables[index]) if index < len(self._tables) else b""
            number = int.from_bytes(table[4 * entry : 4 * entry + 4].ljust(4, b"\xff"), "little")

    def _sector(self, number: int) -> bytes:
        if number >= _LAST:
            return b""
        start = (number + 1) * self._sector_size
        return self._content[start : start + self._sector_size]

    def _top_streams(self) -> Iterator[str]:
        """The names of the streams in no storage: the tree below the root, the first entry."""
        pending = [child for *_, child, _, _ in self._entries[:1]]
        seen: set[int] = set()
        while pending:
            number = pending.pop()
            if number in seen or number >= len(self._entries):
                continue
            seen.add(number)
            name, length, kind, left, right, *_ = self._entries[number]
            pending += (left, right)
            if kind == _STREAM:
                yield name[: max(min(length, 64) - 2, 0)].decode("utf-16-le", "replace")


sniffed = once_per_file(CompoundFile)
"""The compound file that sniffers read."""


def is_complete(content: Content) -> bool:
    """An `is_complete` of compound files."""
    return CompoundFile(content).is_complete
