"""A job's own folder: how much may lie in it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

_INTERVAL = 0.25  # seconds, in which a disk takes some hundred megabytes
_BLOCK = 512  # bytes, in which systems count what a file takes


async def wait_until_exceeded(folder: Path, size: int, files: int) -> None:
    """Returns once there are more bytes below the folder, or more files, than these."""
    while True:
        await asyncio.sleep(_INTERVAL)
        if await asyncio.to_thread(_exceeded, folder, size, files):
            return


def _exceeded(folder: Path, size: int, files: int) -> bool:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    size -= entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    files -= 1
                    if size < 0 or files < 0:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
        except FileNotFoundError:  # gone since it was listed
            continue
        except OSError:  # no permission, or too long a way: who hides something has something to hide
            return True
    return False
