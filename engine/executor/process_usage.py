"""What /proc tells about a process and its descendants: memory and CPU time.

A process opens its files for others, as /proc may hide it from them.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Memory in swap and memory shared with a child count, too. Only at the start of a line: a process chooses its name.
_MEMORY = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB$", re.MULTILINE)
_CPU_CLOCK = 2  # CPUCLOCK_SCHED, of a whole process
_TICKS = os.sysconf("SC_CLK_TCK")  # per second


def open_files(pid: int) -> list[int]:
    """Opens the status of a process, its statistics, and the list of its children, if the kernel has that."""
    files = []
    with suppress(FileNotFoundError):
        for name in ("status", "stat", f"task/{pid}/children"):
            files.append(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC))
    return files


def used_memory(status: bytes) -> int:
    """Returns the memory in bytes of a process, given its status file in /proc, without pages of files."""
    return 1024 * sum(int(size) for size in _MEMORY.findall(status))


def memory_of(pid: int) -> int:
    """Returns the memory in bytes of a process; 0 if it has ended."""
    with suppress(OSError):
        return used_memory(Path(f"/proc/{pid}/status").read_bytes())
    return 0


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process without its children. Raises OSError if it has ended."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def cpu_seconds_of_children(stat: bytes, children: bytes) -> float:
    """Returns the CPU time of the descendants of a process, given its statistics and its list of children."""
    running = [pid for child in children.split() for pid in descendants(int(child))]
    return _cpu_of_ended(stat) + sum(map(_cpu_with_ended, running))


def descendants(pid: int) -> Iterator[int]:
    """Yields the process and its descendants, which stay so: it adopts those whose parents end."""
    yield pid
    with suppress(OSError):  # it has ended, or /proc hides it
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))


def _cpu_with_ended(pid: int) -> float:
    with suppress(OSError):
        return cpu_seconds(pid) + _cpu_of_ended(Path(f"/proc/{pid}/stat").read_bytes())
    return 0.0


def _cpu_of_ended(stat: bytes) -> float:
    """The CPU time in seconds of the children that have ended: the fields after the name, which can have any text."""
    user, system = stat.rpartition(b")")[2].split()[13:15]
    return (int(user) + int(system)) / _TICKS
