"""The folders of worker processes, below one that is locked while in use and otherwise removed at the next start."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "convertd-workers-"


class BaseFolder:
    """A new folder that holds the folders of worker processes, locked while this process uses it.

    It is below `parent`, or below the system's temporary folder if `parent` is None or jobs of other users, as root's
    are, cannot reach it. Removes the folders of processes that have ended. Raises OSError. Blocks.
    """

    def __init__(self, parent: Path | None = None) -> None:
        if parent is None or not _prepare(parent):
            parent = Path(tempfile.gettempdir())
        for other in parent.glob(f"{_PREFIX}*"):
            _remove_unused(other)
        self.path = ""
        while not self.path:
            path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if Path(path).exists():  # not removed by another process before it was locked
                self.path = path
            else:
                os.close(self._lock)
        Path(self.path).chmod(0o711)  # jobs run as other users; each can reach its own folder

    def remove(self) -> None:
        """Removes the folder and its contents. Ignores errors. Blocks."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(folder: str) -> None:
    """Removes a folder and its contents. Ignores errors. Blocks."""
    clear_folder(folder)
    with suppress(OSError):
        Path(folder).rmdir()


def clear_folder(folder: str) -> None:
    """Removes the contents of a folder. Ignores errors. Blocks."""
    with suppress(OSError):
        entries = list(Path(folder).iterdir())
        if entries:
            subprocess.run(["rm", "-rf", "--", *entries], check=False)


def reachable_by_jobs(path: Path) -> bool:
    """Returns whether jobs, which for root run as other users, can traverse the folders above `path`."""
    return os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in path.absolute().parents)


def _prepare(parent: Path) -> bool:
    """Creates the folder. Returns whether jobs can reach it."""
    parent.mkdir(parents=True, exist_ok=True)
    parent.chmod(0o711)
    return reachable_by_jobs(parent)


def _remove_unused(path: Path) -> None:
    """Removes a folder of this user that no process has locked."""
    with suppress(OSError):  # no folder, in use, or removed by another process
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(str(path))
        finally:
            os.close(descriptor)
