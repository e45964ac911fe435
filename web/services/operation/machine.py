"""The memory of this machine, and its shares."""

import os
from collections.abc import Iterator
from pathlib import Path

from config.control_groups import group_folders

_JOB_SHARE = 0.7  # the rest is for the server, the database and the disk cache
_IDLE_SHARE = 0.05


def job_memory(root: Path = Path("/")) -> int:
    """The memory in bytes for all jobs together."""
    return round(_JOB_SHARE * machine_memory(root))


def idle_memory(root: Path = Path("/")) -> int:
    """The memory in bytes for idle worker processes."""
    return round(_IDLE_SHARE * machine_memory(root))


def machine_memory(root: Path = Path("/")) -> int:
    """The memory in bytes that this process can use: of the machine, or the limit of its control group."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_control_group_limits(root)])


def _control_group_limits(root: Path) -> Iterator[int]:
    """The memory limits in bytes of this process's control groups and their parents."""
    for folder, unified in group_folders("memory", root):
        limit = folder / ("memory.max" if unified else "memory.limit_in_bytes")
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            yield int(text)
