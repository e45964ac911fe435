"""Resource limits of this process: memory, CPU time, files and threads.

Hard limits are set once and apply to the whole life of a process. Soft limits apply to one task; a `final` task, after
which the process ends, has them as hard limits too.
"""

import math
import os
import resource
from pathlib import Path

_OPEN_FILES = 256
_THREADS = 64
_THREADS_OF_SEVERAL_PROCESSES = 256
_THREADS_PER_CORE = 4  # codecs start some threads per core
_KILL_DELAY = 2  # seconds of CPU time after SIGXCPU, which can be ignored


def address_space() -> int:
    """Returns the size of the address space in bytes. Call it before Landlock hides /proc."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def limit_process(*, memory: int | None, output: int) -> None:
    """Limits the process for its life: its address space to `memory` bytes, if given, each file to `output` bytes.

    Also limits open files and disables core dumps.
    """
    if memory is not None:
        _limit(resource.RLIMIT_AS, memory, final=True)
    _limit(resource.RLIMIT_FSIZE, output, final=True)
    _limit(resource.RLIMIT_CORE, 0, final=True)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES, final=True)


def limit_task(*, cpu: float, output: int, final: bool) -> None:
    """Limits further CPU time to `cpu` seconds, and files to `output` bytes each."""
    _limit(resource.RLIMIT_FSIZE, output, final=final)  # Python ignores SIGXFSZ: writing more raises OSError
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = math.ceil(used.ru_utime + used.ru_stime) + max(1, round(cpu))
    _limit(resource.RLIMIT_CPU, allowed, final=final, hard_margin=_KILL_DELAY)


def limit_memory(size: int, *, final: bool) -> None:
    """Limits the address space to `size` bytes."""
    _limit(resource.RLIMIT_AS, size, final=final)


def limit_threads(*, several_processes: bool) -> None:
    """Limits the threads and processes of this process's user."""
    count = _THREADS_OF_SEVERAL_PROCESSES if several_processes else _THREADS
    _limit(resource.RLIMIT_NPROC, count + _THREADS_PER_CORE * (os.cpu_count() or 1), final=True)


def peak_memory() -> int:
    """Returns the largest resident size in bytes of this process or of a program that it has run."""
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(process).ru_maxrss for process in processes) * 1024


def _limit(limit: int, value: int, *, final: bool, hard_margin: int = 0) -> None:
    """Sets the soft limit to `value`, or to the hard limit if that is lower.

    If `final`, lowers the hard limit to `value + hard_margin`.
    """
    _, hard = resource.getrlimit(limit)
    if final:
        lowered = value + hard_margin
        hard = lowered if hard == resource.RLIM_INFINITY else min(lowered, hard)
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
