"""The quotas of a running job that the kernel does not enforce: disk space, and memory of all its processes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engine.errors import ConversionError, OutOfMemory
from engine.executor import jobs
from engine.executor.jobs import JobLimits

_INTERVAL = 0.25  # seconds; a job can exceed a quota by some hundred megabytes in this time
_BLOCK = 512  # bytes, the unit of st_blocks
# Memory in swap and memory shared with a child count, too. Only at the start of a line: a process chooses its name.
_MEMORY = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB$", re.MULTILINE)


async def wait_until_exceeded(pid: int, folder: Path, limits: JobLimits, initial_memory: int) -> ConversionError:
    """Returns the error when the job exceeds a quota: `folder` on disk space, or the process `pid` on memory.

    The process has used `initial_memory` bytes before its first job.
    """
    while True:
        await asyncio.sleep(_INTERVAL)
        if await asyncio.to_thread(_exceeds_disk_quota, folder, limits.scratch, limits.files):
            return jobs.quota_error(limits)
        if await asyncio.to_thread(_exceeds_memory, pid, limits.memory + initial_memory):
            return OutOfMemory("The processes of the conversion exceeded its memory limit together.")


def used_memory(status: bytes) -> int:
    """Returns the memory in bytes of a process, given its status file in /proc, without pages of files."""
    return 1024 * sum(int(size) for size in _MEMORY.findall(status))


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
    """Whether a process and its descendants use more memory. A process alone is limited by its address space."""
    processes = list(_descendants(pid))
    return len(processes) > 1 and sum(map(_memory_of, processes)) > max_bytes


def _descendants(pid: int) -> Iterator[int]:
    """Yields the process and its descendants, which stay so: it adopts those whose parents end."""
    yield pid
    with suppress(OSError):  # it has ended, or /proc hides it
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _descendants(int(child))


def _memory_of(pid: int) -> int:
    with suppress(OSError):
        return used_memory(Path(f"/proc/{pid}/status").read_bytes())
    return 0
