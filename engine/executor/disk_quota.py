"""The disk quota of a job's folder, enforced by polling."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

_INTERVAL = 0.25  # seconds; a job can exceed its quota by some hundred megabytes in this time
_BLOCK = 512  # bytes, the unit of st_blocks


async def wait_until_exceeded(folder: Path, max_bytes: int, max_files: int) -> None:
    """Returns when the folder and its subfolders hold more than `max_bytes` or `max_files`."""
    while True:
        await asyncio.sleep(_INTERVAL)
        if await asyncio.to_thread(_exceeds, folder, max_bytes, max_files):
            return


def _exceeds(folder: Path, max_bytes: int, max_files: int) -> bool:
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
