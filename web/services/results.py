"""Results that clients fetch later: the bytes, and beside them what is known about them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from web.services.ids import new_id

_ID = re.compile(r"file_[A-Za-z0-9]+")


@dataclass(frozen=True)
class Kept:
    """A result that can be downloaded by its account until `expires_at`, in Unix time."""

    file_id: str
    account_id: str
    filename: str
    media_type: str
    size: int
    expires_at: float


class Results:
    """Keeps results in `folder` for so many seconds. Everything that touches the disk runs in a thread."""

    def __init__(self, folder: Path, retention: int, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._retention = retention
        self._clock = clock

    def prepare(self) -> None:
        """Makes the folder. Works on the disk."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def keep(self, account_id: str, path: Path, filename: str, media_type: str, size: int) -> Kept:
        """Takes the result out of the folder of its request."""
        expires_at = self._clock() + self._retention
        kept = Kept(new_id("file"), account_id, filename, media_type, size, expires_at)
        await asyncio.to_thread(self._store, path, kept)
        return kept

    async def discard(self, kept: Kept) -> None:
        """Erases a result that nobody has been told of."""
        await asyncio.to_thread(self._erase, kept.file_id)

    async def find(self, account_id: str, file_id: str) -> Kept | None:
        """The account's result of that id, if there is one and it has not expired."""
        if not _ID.fullmatch(file_id):
            return None
        kept = await asyncio.to_thread(_read, self._about(file_id))
        known = kept is not None and kept.account_id == account_id and kept.expires_at > self._clock()
        return kept if known else None

    def path(self, kept: Kept) -> Path:
        """Where the bytes lie."""
        return self._folder / kept.file_id

    async def sweep(self) -> None:
        """Erases what has expired, and what belongs to no result."""
        await asyncio.to_thread(self._sweep)

    def _about(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.json"

    def _store(self, source: Path, kept: Kept) -> None:
        source.replace(self.path(kept))
        self._about(kept.file_id).write_text(json.dumps(asdict(kept)))

    def _sweep(self) -> None:
        for file_id in {path.stem for path in self._folder.iterdir()}:
            if self._expiry(file_id) <= self._clock():
                self._erase(file_id)

    def _erase(self, file_id: str) -> None:
        for path in (self._folder / file_id, self._about(file_id)):
            path.unlink(missing_ok=True)

    def _expiry(self, file_id: str) -> float:
        """When it expires; bytes that nothing is known about are taken to be as old as they look."""
        kept = _read(self._about(file_id))
        if kept is not None:
            return kept.expires_at
        try:
            return (self._folder / file_id).stat().st_mtime + self._retention
        except FileNotFoundError:
            return 0


def _read(path: Path) -> Kept | None:
    try:
        return Kept(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
