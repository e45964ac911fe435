"""Memory in bytes: what a job is likely to take, and what all of them may have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.gates import MAX_PIXELS
from engine.memory import needed
from engine.planner import Plan

_SHARE = 0.7  # of the machine's memory; the rest is for the server, the database and the disk cache


def expected(plan: Plan, size: int) -> int:
    """What a job of that plan is likely to take for files of `size` bytes, which nobody has opened yet.

    A file that hides more pixels than its size suggests meets the limit of its own process.
    """
    return needed(plan, min(size / plan.source.density, MAX_PIXELS))


def budget(root: Path = Path("/")) -> int:
    """What all conversions may take together: a share of the machine's memory, or of what this process may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(_SHARE * min([machine, *_control_group_limits(root)]))


def _control_group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups and of those around them, of both versions."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif controllers == "memory":
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            limit = top / folder / name
            if limit.exists() and (text := limit.read_text().strip()) != "max":
                yield int(text)
