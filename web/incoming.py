"""Files that arrive: collected in memory for a while, and brought to the disk in one go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.formats import FileFormat
from web.errors import FileTooLarge
from web.services.orders import Upload

Identify = Callable[[Path], FileFormat]
"""Finds out the format of a file; reads from disk. Raises UnknownFormat."""


class IncomingFile:
    """A part that goes to disk. Between writes it is closed, so whoever gives up has nothing to give back."""

    def __init__(self, path: Path, filename: str, max_size: int) -> None:
        self._path = path
        self._filename = filename
        self._max_size = max_size
        self._size = 0
        self._pending = bytearray()

    def take(self, data: bytes) -> None:
        """Takes the next bytes. Raises FileTooLarge."""
        self._size += len(data)
        if self._size > self._max_size:
            raise FileTooLarge(self._max_size)
        self._pending += data

    def pending(self) -> int:
        """Bytes that are not on disk yet."""
        return len(self._pending)

    def save(self) -> None:
        """Brings what is pending to the disk."""
        with self._path.open("ab", buffering=0) as file:
            unwritten = memoryview(self._pending)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
        self._pending = bytearray()

    def upload(self, identify: Identify) -> Upload:
        """The whole file, which is on the disk now."""
        self.save()
        identified: FileFormat | Exception
        try:
            identified = identify(self._path)
        except Exception as error:
            identified = error
        return Upload(self._path, self._filename, self._size, identified)
