"""What a job's process may take of the machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_OPEN_FILES = 256
_THREADS, _THREADS_A_CORE = 64, 4  # codecs start some for each core
_KILLED_AFTER = 2  # seconds of CPU time after the first signal, which could be ignored


def addresses() -> int:
    """Bytes of addresses that this process has taken. To be asked before the walls are up: they hide /proc."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def bound_memory(size: int) -> None:
    """Bounds this process to so many bytes of addresses, those that it has included; never raises the bound."""
    _lower(resource.RLIMIT_AS, size)


def bound_threads() -> None:
    """Bounds the threads and processes of this process's user."""
    _lower(resource.RLIMIT_NPROC, _THREADS + _THREADS_A_CORE * (os.cpu_count() or 1))


def bound(*, seconds: float, output: int) -> None:
    """Bounds this process: CPU `seconds`, files of `output` bytes, no core dumps."""
    _lower(resource.RLIMIT_FSIZE, output)  # writing more raises: Python ignores the signal that would kill
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    # Two threads for as long as the wall clock allows.
    _lower(resource.RLIMIT_CPU, max(1, round(seconds * 2)), spare=_KILLED_AFTER)


def peak_memory() -> int:
    """The most bytes of memory that this process, or a program that it ran, has had."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * 1024


def _lower(limit: int, value: int, *, spare: int = 0) -> None:
    """Lowers a limit to `value`, the hard one to `spare` more; never raises one."""
    _, ceiling = resource.getrlimit(limit)
    hard = value + spare if ceiling == resource.RLIM_INFINITY else min(value + spare, ceiling)
    resource.setrlimit(limit, (min(value, hard), hard))
