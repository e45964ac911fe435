"""What a job's process may take of the machine."""

from __future__ import annotations

import resource
import signal

_OPEN_FILES = 256
_KILLED_AFTER = 2  # seconds of CPU time after the first signal, which could be ignored


def bound(*, memory: int, seconds: float, output: int) -> None:
    """Bounds this process: `memory` bytes of addresses, CPU `seconds`, files of `output` bytes, no core dumps."""
    _lower(resource.RLIMIT_AS, memory)
    _lower(resource.RLIMIT_FSIZE, output)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    # Two threads for as long as the wall clock allows.
    _lower(resource.RLIMIT_CPU, max(1, round(seconds * 2)), spare=_KILLED_AFTER)
    # Without this a file over its limit kills the process; with it, writing raises.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def peak_memory() -> int:
    """The most bytes of memory that this process, or a program that it ran, has had."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * 1024


def _lower(limit: int, value: int, *, spare: int = 0) -> None:
    """Lowers a limit to `value`, the hard one to `spare` more; never raises one."""
    _, ceiling = resource.getrlimit(limit)
    hard = value + spare if ceiling == resource.RLIM_INFINITY else min(value + spare, ceiling)
    resource.setrlimit(limit, (min(value, hard), hard))
