"""The folders of worker processes, and the quotas of a running task that the kernel does not enforce.

The folders are below one that is locked while in use and otherwise removed at the next start.
"""

import asyncio
import fcntl
import os
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from engine.errors import ConversionError, OutOfMemory
from engine.executor import tasks
from engine.executor.tasks import TaskLimits
from engine.executor.worker_process import WorkerProcess, descendants, memory_of

INTERVAL = 0.25  # seconds; a task can exceed a quota by some hundred megabytes in this time
_PREFIX = "convertd-workers-"
_BLOCK = 512  # bytes, the unit of st_blocks


class BaseFolder:
    """A new folder that holds the folders of worker processes, locked while this process uses it.

    It is below `parent`, or below the system's temporary folder if `parent` is None or tasks of other users, as root's
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
        Path(self.path).chmod(0o711)  # tasks run as other users; each can reach its own folder

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


def reachable_by_tasks(path: Path) -> bool:
    """Returns whether tasks, which for root run as other users, can traverse the folders above `path`."""
    return os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in path.absolute().parents)


def _prepare(parent: Path) -> bool:
    """Creates the folder. Returns whether tasks can reach it."""
    parent.mkdir(parents=True, exist_ok=True)
    parent.chmod(0o711)
    return reachable_by_tasks(parent)


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


async def watch_quotas(process: WorkerProcess, limits: TaskLimits, initial_memory: int) -> ConversionError:
    """Kills a process whose folder exceeds the quota on disk space, or that exceeds the memory limit with its children.

    Looks now and every quarter of a second, until it is cancelled. The process has used `initial_memory` bytes before
    its first task. Returns the error, which names the quota.
    """
    error: ConversionError | None = None
    while error is None:
        if await asyncio.to_thread(_exceeds_disk_quota, process.folder, limits.scratch, limits.files):
            error = tasks.quota_error(limits)
        elif await asyncio.to_thread(_exceeds_memory, process.pid, limits.memory + initial_memory):
            error = OutOfMemory("The processes of the conversion exceeded its memory limit together.")
        else:
            await asyncio.sleep(INTERVAL)
    process.kill()
    return error


def _exceeds_disk_quota(folder: Path, max_bytes: int, max_files: int) -> bool:
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    max_bytes -= entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    max_files -= 1
                    if max_bytes < 0 or max_files < 0:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except FileNotFoundError:  # deleted since it was listed
            continue
        except OSError:  # unreadable or nested too deeply: treated as an attempt to evade the quota
            return True
    return False


def _exceeds_memory(pid: int, max_bytes: int) -> bool:
    """Whether several processes, one and its descendants, use more memory: the kernel limits a process alone."""
    processes = list(descendants(pid))
    return len(processes) > 1 and sum(map(memory_of, processes)) > max_bytes
