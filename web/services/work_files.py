"""Working folders of requests: uploads and results, from the arrival of the body until the response is sent."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from web.api.errors import NoSpace, RateLimited

_SPACE = 2 << 30  # bytes of uploads in all folders
_MIN_RESERVATION = 8 << 20  # bytes; the result needs space, too, and at most 256 folders exist at a time
_DISK_RESERVE, _DISK_RESERVE_SHARE = 1 << 30, 20  # free disk space to leave: 1 GiB, or 1/20 of a small disk
_RETRY_AFTER = 5  # seconds
_STALE_AFTER = 3600  # seconds; longer than any request
_REMOVAL_DELAY = 0.1  # seconds; folders discarded meanwhile are removed together
_REMOVAL_ATTEMPTS = 5  # a process that is ending may still write to the folder


class WorkFiles:
    """Private folders below `root`, one per request, with uploads of at most `space` bytes in all."""

    def __init__(self, root: Path, *, space: int = _SPACE) -> None:
        self._root = root
        self._space = space
        self._reserved: dict[Path, int] = {}
        self._pending = 0  # bytes reserved for folders that are being created
        self._discarded: list[Path] = []
        self._removals: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Creates the root and removes folders left over from a killed server. Blocks."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in self._root.iterdir():
            if folder.stat().st_mtime < time.time() - _STALE_AFTER:
                _remove([folder])

    async def create(self, size: int) -> Path:
        """Creates a folder for an upload of at most `size` bytes, readable only by this user.

        Raises RateLimited, reason `queue_full`, and NoSpace.
        """
        size = max(size, _MIN_RESERVATION)
        if sum(self._reserved.values()) + self._pending + size > self._space:
            raise RateLimited("Too many uploads at once.", retry_after=_RETRY_AFTER, reason="queue_full")
        self._pending += size
        try:
            folder = await asyncio.to_thread(_create, self._root, size)
        finally:
            self._pending -= size
        self._reserved[folder] = size
        return folder

    @asynccontextmanager
    async def temporary(self, size: int) -> AsyncIterator[Path]:
        """Creates a folder as `create` does and discards it after the block."""
        folder = await self.create(size)
        try:
            yield folder
        finally:
            self.discard(folder)

    def discard(self, folder: Path) -> None:
        """Schedules the removal of the folder and its content."""
        self._discarded.append(folder)
        if len(self._discarded) == 1:
            removal = asyncio.ensure_future(self._remove_discarded())
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def close(self) -> None:
        """Waits until all discarded folders are removed."""
        while self._removals:
            await asyncio.gather(*self._removals, return_exceptions=True)

    async def _remove_discarded(self) -> None:
        await asyncio.sleep(_REMOVAL_DELAY)
        folders, self._discarded = self._discarded, []
        await asyncio.to_thread(_remove, folders)
        for folder in folders:
            self._reserved.pop(folder, None)


def _create(root: Path, size: int) -> Path:
    disk = shutil.disk_usage(root)
    if disk.free < size + min(_DISK_RESERVE, disk.total // _DISK_RESERVE_SHARE):
        raise NoSpace
    return Path(tempfile.mkdtemp(prefix="job-", dir=root))


def _remove(folders: Iterable[Path]) -> None:
    for _ in range(_REMOVAL_ATTEMPTS):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        folders = [folder for folder in folders if folder.exists()]
        if not folders:
            return
        time.sleep(0.1)
