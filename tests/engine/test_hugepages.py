"""What a process has loaded lies on huge pages, where the system has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine import sandbox
from engine.forkserver import ForkServer
from engine.hugepages import _places

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PROGRAM = """
import re
from pathlib import Path
from engine import hugepages, preload

preload.warm()
hugepages.gather()
memory = Path("/proc/self/smaps_rollup").read_text()
print(*(re.search(rf"{name}: +(\\d+)", memory)[1] for name in ("Anonymous", "AnonHugePages")))
"""
_MAPS = """\
55d256c5a000-55d257fbd000 rw-p 00000000 00:00 0                          [heap]
7f9b0fbb8000-7f9b0ffb8000 rw-p 00000000 00:00 0 
7f9b10000000-7f9b10400000 r--p 00000000 00:00 0 
7f9b11000000-7f9b11400000 rw-p 00002000 fe:00 4711                       /usr/lib/libc.so.6
7f9b12000000-7f9b12400000 rw-s 00000000 00:01 4711                       /dev/zero (deleted)
7f9b13000000-7f9b13400000 rw-p 00000000 00:00 0 
7ffd2f000000-7ffd2f400000 rw-p 00000000 00:00 0                          [stack]
"""  # noqa: W291


has_them = pytest.mark.skipif(
    not _SETTING.exists() or "[never]" in _SETTING.read_text(), reason="this system has no transparent huge pages"
)


@has_them
def test_much_of_what_is_loaded_lies_on_huge_pages() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    own, huge = map(int, done.stdout.split())
    assert huge > 0.4 * own


@has_them
@pytest.mark.parametrize("full", [False, True])
def test_jobs_are_forked_from_huge_pages(full: bool) -> None:
    forkserver = ForkServer(sandbox.ALWAYS, full=full)
    try:
        job = forkserver.fork()
        parent = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{job.pid}/status").read_text())
        assert parent
        memory = re.search(r"AnonHugePages:\s+(\d+)", Path(f"/proc/{parent[1]}/smaps_rollup").read_text())
        job.close(5)
    finally:
        forkserver.close()
    assert memory
    assert int(memory[1]) > 0


def test_huge_pages_lie_in_own_memory_alone() -> None:
    assert [f"{start:x}" for start in _places(_MAPS)] == [
        *(f"{start:x}" for start in range(0x55D256E00000, 0x55D257C00001, 2 << 20)),
        "7f9b0fc00000",
        "7f9b13000000",
        "7f9b13200000",
    ]
