"""Files that arrive: collected in memory for a while, and brought to the disk in one go."""

from __future__ import annotations

from pathlib import Path

from web.errors import FileTooLarge
from web.services.orders import Upload


class IncomingFile:
    """A part that goes to disk. Between writes it is closed, so whoever gives up has nothing to give back."""

    def __init__(self, path: Path, filename: str, max_size: int) -> None:
        self._max_size = max_size
        self._pending = bytearray()
        self.upload = Upload(path, filename, 0)

    def take(self, data: bytes) -> None:
        """Takes the next bytes. Raises FileTooLarge."""
        size = self.upload.size + len(data)
        if size > self._max_size:
            raise FileTooLarge(self._max_size)
        self._pending += data
        self.upload = Upload(self.upload.path, self.upload.filename, size)

    def pending(self) -> int:
        """Bytes that are not on disk yet."""
        return len(self._pending)

    def save(self) -> None:
        """Brings what is pending to the disk."""
        with self.upload.path.open("ab", buffering=0) as file:
            unwritten = memoryview(self._pending)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
        self._pending = bytearray()
