"""Job folders: where an upload and its result lie while a request runs, and never longer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

_STALE = 3600  # seconds; no request takes that long
_PERSISTENCE = 5  # times that a folder is removed while something may still write to it


class JobFolders:
    """Private folders below `root`, one a request."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._removals: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Makes the root, and removes what a server that died has left. Works on the disk."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in self._root.iterdir():
            if folder.stat().st_mtime < time.time() - _STALE:
                _remove(folder)

    async def open(self) -> Path:
        """A new folder that only this user can look into."""
        return Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="job-", dir=self._root))

    def discard(self, folder: Path) -> None:
        """Removes the folder with all that is in it, soon and in a thread."""
        removal = asyncio.ensure_future(asyncio.to_thread(_remove, folder))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def close(self) -> None:
        """Waits until all that was discarded is gone."""
        while self._removals:
            await asyncio.gather(*self._removals, return_exceptions=True)


def _remove(folder: Path) -> None:
    for _ in range(_PERSISTENCE):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
