"""Resource limits of this process: memory, CPU time, files and threads. Limits are lowered, never raised."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_OPEN_FILES = 256
_THREADS, _THREADS_PER_CORE = 64, 4  # codecs start some threads per core
_KILL_DELAY = 2  # seconds of CPU time after SIGXCPU, which can be ignored


def address_space() -> int:
    """Returns the size of the address space in bytes. Call it before Landlock hides /proc."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def limit_memory(size: int) -> None:
    """Limits the address space to `size` bytes."""
    _lower(resource.RLIMIT_AS, size)


def limit_threads() -> None:
    """Limits the threads and processes of this process's user."""
    _lower(resource.RLIMIT_NPROC, _THREADS + _THREADS_PER_CORE * (os.cpu_count() or 1))


def limit_resources(*, seconds: float, output: int) -> None:
    """Limits CPU time to that of two cores for `seconds`, and files to `output` bytes each; disables core dumps."""
    _lower(resource.RLIMIT_FSIZE, output)  # Python ignores SIGXFSZ, so that writing more raises OSError
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_CPU, max(1, round(seconds * 2)), hard_margin=_KILL_DELAY)


def peak_memory() -> int:
    """Returns the largest resident size in bytes of this process or of a program that it has run."""
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(process).ru_maxrss for process in processes) * 1024


def _lower(limit: int, value: int, *, hard_margin: int = 0) -> None:
    """Lowers the soft limit to `value` and the hard limit to `value + hard_margin`."""
    _, current = resource.getrlimit(limit)
    hard = value + hard_margin if current == resource.RLIM_INFINITY else min(value + hard_margin, current)
    resource.setrlimit(limit, (min(value, hard), hard))
