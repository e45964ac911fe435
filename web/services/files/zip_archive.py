"""ZIP archives that are made while they are sent: neither on the disk nor as a whole in memory."""

import io
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from zipfile import ZIP_DEFLATED, ZipFile

from typing_extensions import Buffer

from engine.file_names import UniqueNames

_LARGE = 1 << 30  # bytes of a file whose sizes have 64 bits in the archive
_MODE = 0o644

ReadBlob = Callable[[str, int, int], AsyncIterator[bytes]]
"""Reads a blob from one byte up to another."""


@dataclass(frozen=True)
class Entry:
    """A file for an archive: its name, the key of its blob, and its size in bytes."""

    name: str
    blob: str
    size: int


async def zip_blocks(entries: Sequence[Entry], read: ReadBlob) -> AsyncIterator[bytes]:
    """Yields an archive in blocks of about the size of those that `read` yields. Raises as `read` does.

    Entries of the same name are numbered. They are not compressed further: most results are compressed already.
    """
    written = _Written()
    unique = UniqueNames()
    # Level 0 of Deflate instead of no compression: the size of an entry follows its content, which readers of a stream
    # can only find the end of if it is marked.
    with ZipFile(written, "w", ZIP_DEFLATED, compresslevel=0) as archive:
        for entry in entries:
            name = unique.add(entry.name)
            with archive.open(name, "w", force_zip64=entry.size >= _LARGE) as target:
                async for block in read(entry.blob, 0, entry.size):
                    target.write(block)
                    yield written.take()
            archive.getinfo(name).external_attr = _MODE << 16  # otherwise only the owner may read an extracted file
    yield written.take()


class _Written(io.RawIOBase):
    """A file that is only written to. `take` returns what has been written since the last call."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        self._pending += data
        return len(memoryview(data))

    def take(self) -> bytes:
        taken = bytes(self._pending)
        self._pending = bytearray()
        return taken
