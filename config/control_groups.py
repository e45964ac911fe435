"""Limits of the control groups that this process is in, versions 1 and 2: containers and services have them."""

import os
from collections.abc import Iterator
from pathlib import Path


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[tuple[Path, bool]]:
    """The folders of this process's control groups and their parents, and whether they are of version 2."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top, group = root / "sys/fs/cgroup" / (controller if controllers else ""), Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield top / folder, not controllers


def usable_cpus(root: Path = Path("/")) -> int:
    """The CPUs that this process can use: those it may run on, or the quota of its control groups, rounded up."""
    found = [len(os.sched_getaffinity(0))]
    for folder, unified in group_folders("cpu", root):
        names = ("cpu.max",) if unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        files = [folder / name for name in names]
        if all(file.exists() for file in files):
            quota, period = " ".join(file.read_text() for file in files).split()
            if quota.isdigit():  # not max, or -1
                found.append(-(-int(quota) // int(period)))
    return max(1, min(found))
