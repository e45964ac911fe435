"""Job folders: where an upload and its result lie while a request runs, and never longer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from web.api.errors import NoSpace, RateLimited

_SPACE = 2 << 30  # bytes of uploads that have not been dealt with
_LEAST = 8 << 20  # bytes that any request is given: its result lies beside its upload, so 256 fit in at most
_SPARE, _SPARE_SHARE = 1 << 30, 20  # bytes of the disk, or this part of it, that uploads leave free
_RETRY_AFTER = 5  # seconds
_STALE = 3600  # seconds; no request takes that long
_PAUSE = 0.1  # seconds before folders are removed: those that are discarded meanwhile go in one
_PERSISTENCE = 5  # times that a folder is removed while something may still write to it


class WorkFiles:
    """Private folders below `root`, one a request, with uploads of at most `space` bytes in all."""

    def __init__(self, root: Path, *, space: int = _SPACE) -> None:
        self._root = root
        self._space = space
        self._given: dict[Path, int] = {}
        self._opening = 0
        self._discarded: list[Path] = []
        self._removals: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Makes the root, and removes what a server that died has left. Works on the disk."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in self._root.iterdir():
            if folder.stat().st_mtime < time.time() - _STALE:
                _remove([folder])

    async def open(self, size: int) -> Path:
        """A new folder that only this user can look into, for an upload of at most `size` bytes.

        Raises RateLimited, reason `queue_full`, or NoSpace.
        """
        size = max(size, _LEAST)
        if sum(self._given.values()) + self._opening + size > self._space:
            raise RateLimited("Too many uploads at once.", retry_after=_RETRY_AFTER, reason="queue_full")
        self._opening += size
        try:
            folder = await asyncio.to_thread(_make, self._root, size)
        finally:
            self._opening -= size
        self._given[folder] = size
        return folder

    @asynccontextmanager
    async def folder(self, size: int) -> AsyncIterator[Path]:
        """A new folder as `open` makes it, which is gone after the block."""
        folder = await self.open(size)
        try:
            yield folder
        finally:
            self.discard(folder)

    def discard(self, folder: Path) -> None:
        """Removes the folder with all that is in it, soon and in a thread."""
        self._discarded.append(folder)
        if len(self._discarded) == 1:
            removal = asyncio.ensure_future(self._remove())
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def _remove(self) -> None:
        await asyncio.sleep(_PAUSE)
        folders, self._discarded = self._discarded, []
        await asyncio.to_thread(_remove, folders)
        for folder in folders:
            self._given.pop(folder, None)

    async def close(self) -> None:
        """Waits until all that was discarded is gone."""
        while self._removals:
            await asyncio.gather(*self._removals, return_exceptions=True)


def _make(root: Path, size: int) -> Path:
    disk = shutil.disk_usage(root)
    if disk.free < size + min(_SPARE, disk.total // _SPARE_SHARE):
        raise NoSpace
    return Path(tempfile.mkdtemp(prefix="job-", dir=root))


def _remove(folders: Iterable[Path]) -> None:
    for _ in range(_PERSISTENCE):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        folders = [folder for folder in folders if folder.exists()]
        if not folders:
            return
        time.sleep(0.1)
