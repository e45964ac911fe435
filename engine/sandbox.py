"""The walls of a job's process, put up before it opens a file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def layers() -> dict[str, bool]:
    """The walls by name, and whether this system has them."""
    return {"rlimits": True, "session": True, "parent_death_signal": sys.platform == "linux"}


def enter(*, memory: int, seconds: float, output: int) -> None:
    """Bounds this process: `memory` bytes of addresses, CPU `seconds`, files of `output` bytes, no core dumps.

    It gets a session of its own, so that what it starts can be killed with it, and dies with its parent.
    """
    os.setsid()
    if layers()["parent_death_signal"]:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _bound(resource.RLIMIT_AS, memory)
    _bound(resource.RLIMIT_FSIZE, output)
    _bound(resource.RLIMIT_CORE, 0)
    # Two threads for as long as the wall clock allows; the second figure only serves whoever ignores the signal.
    _bound(resource.RLIMIT_CPU, max(1, round(seconds * 2)), spare=2)
    # Without this a file over its limit kills the process; with it, writing raises.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _bound(limit: int, value: int, *, spare: int = 0) -> None:
    """Lowers a limit to `value`, the hard one to `spare` more; never raises one."""
    _, ceiling = resource.getrlimit(limit)
    hard = value + spare if ceiling == resource.RLIM_INFINITY else min(value + spare, ceiling)
    resource.setrlimit(limit, (min(value, hard), hard))
