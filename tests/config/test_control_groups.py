"""The CPUs that a process can use, by the quota of its control groups."""

import os
from pathlib import Path

import pytest

from config.control_groups import usable_cpus

CPUS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/pod/box\n", {"pod/cpu.max": "100000 100000", "pod/box/cpu.max": "max 100000"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000"}, min(2, CPUS)),
        ("0::/\n", {"cpu.max": "max 100000"}, CPUS),
        ("0::/\n", {"cpu.max": "99900000 100000"}, CPUS),
        ("0::/\n", {}, CPUS),
        ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "50000", "cpu/box/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, CPUS),
        ("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, CPUS),
        (None, {}, CPUS),
    ],
)
def test_quotas(tmp_path: Path, membership: str | None, files: dict[str, str], expected: int) -> None:
    texts = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {**texts, **({} if membership is None else {"proc/self/cgroup": membership})}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert usable_cpus(tmp_path) == expected
