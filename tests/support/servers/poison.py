"""`convertd serve` with faults: a job harms the process of its server if the name of its file is `poison-` and a deed.

Run as a program, with the arguments of `convertd`.
"""

import ctypes
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from benchmarks.processes import ConvertdServer
from web.cli.main import main


def _raise(number: signal.Signals) -> None:
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _run_forever() -> None:
    while True:
        pass


def _grow() -> None:
    """Takes 100 MB a second."""
    taken = []
    while True:
        taken.append(bytes(range(256)) * 4096)
        time.sleep(0.01)


def _overflow() -> None:
    """Recurses in C code, until the stack is full."""
    sys.setrecursionlimit(10**9)

    def call(_: int) -> list[Any]:
        return [*map(call, [0])]

    call(0)


def _use_up_cpu_time() -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + 1, resource.RLIM_INFINITY))
    _run_forever()


def _lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


DEADLY: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "exit-0": partial(os._exit, 0),
        "exit-1": partial(os._exit, 1),
        "abort": os.abort,
        "null": partial(ctypes.string_at, 0),
        "stack": _overflow,
        "cpu": _use_up_cpu_time,
        **{
            f"signal-{number.name.lower()[3:]}": partial(_raise, number)
            for number in (
                *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL),
                *(signal.SIGFPE, signal.SIGQUIT, signal.SIGTRAP),
            )
        },
    }
)
"""Deeds that end a process at once."""

SILENT: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "expression": partial(re.match, r"(\s*\S*)*x", "a " * 40),
        "loop": _run_forever,
        "sleep": partial(time.sleep, 3600),
        "held": partial(ctypes.PyDLL(None).sleep, 3600),  # other threads do not run, either
        "lock": _lock_twice,
        "pipe": partial(os.read, os.pipe()[0], 1),
        "memory": _grow,
    }
)
"""Deeds after which the loop of the process stands still."""


def _haste() -> None:
    from web import app  # noqa: PLC0415, after what the parent of processes imports

    app.STOP_TIMEOUT = 2


OTHERS: Mapping[str, Callable[[], object]] = MappingProxyType({"haste": _haste})
"""Deeds that do no harm. `haste`: the server may take 2 s to stop."""


class PoisonedServer(ConvertdServer):
    """A server with these faults."""

    @property
    def command(self) -> Sequence[str]:
        return sys.executable, "-m", __name__, *super().command[1:]


def _install() -> None:
    from web.services.jobs.job_requests import RequestLoader  # noqa: PLC0415, after what the parent of processes imports

    load: Any = RequestLoader.load

    def load_after_deed(self: RequestLoader, job: Any, *values: Any) -> Any:
        if found := re.search(r"poison-([a-z0-9-]+)", job.request):
            {**DEADLY, **SILENT, **OTHERS}[found[1]]()
        return load(self, job, *values)

    RequestLoader.load = load_after_deed  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    if sys.argv[-1] == "1":  # process
        _install()
    else:
        os.register_at_fork(after_in_child=_install)
    main()
