"""Runs code of others: with what it changes of the process undone, and in processes of its own with a deadline."""

import atexit
import ctypes
import gc
import locale
import logging
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

DEADLINE = 3.0
"""Seconds for a function in a process of its own, without the time in which other processes had the CPU."""

_MAX_ERROR = 300  # characters
_MAX_DATA = 2 << 30  # bytes of memory to which such a process can write
_REPORT = 3  # the descriptor to which it writes the error; an error begins after this mark
_MARK = b"+"


def describe(error: BaseException) -> str:
    """The type and the message of an error, in one line."""
    text = f"{type(error).__name__}: {error}"[:_MAX_ERROR]
    return "".join(char if char.isprintable() else " " for char in text)


@contextmanager
def contained() -> Iterator[None]:
    """Undoes, at the end of the block, what an import usually changes of the process.

    What is printed during the block goes to standard error.
    """
    with ExitStack() as stack:
        undo = stack.callback
        folder = os.open(".", os.O_PATH)
        undo(os.close, folder)
        undo(os.fchdir, folder)
        mask = os.umask(0)
        undo(os.umask, mask)
        os.umask(mask)
        undo(os.environ.update, dict(os.environ))
        undo(os.environ.clear)
        undo(_restore_signals, {number: signal.getsignal(number) for number in signal.valid_signals()})
        undo(sys.path.__setitem__, slice(None), [*sys.path])
        undo(sys.setrecursionlimit, sys.getrecursionlimit())
        undo(locale.setlocale, locale.LC_ALL, locale.setlocale(locale.LC_ALL))
        undo(gc.enable if gc.isenabled() else gc.disable)
        _keep_logging(undo)
        _print_to_standard_error(stack)
        yield


def _restore_signals(handlers: Mapping[signal.Signals, Any]) -> None:
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _keep_logging(undo: Callable[..., object]) -> None:
    """Hides the handlers, because a configuration would close them, and has them and the levels restored."""
    root, listed = logging.root, logging._handlerList  # type: ignore[attr-defined]
    undo(root.setLevel, root.level)
    undo(setattr, root, "handlers", root.handlers)
    undo(setattr, root.manager, "disable", root.manager.disable)
    for logger in root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            undo(setattr, logger, "disabled", logger.disabled)
    undo(listed.extend, [*listed])
    listed.clear()
    root.handlers = []


def _print_to_standard_error(stack: ExitStack) -> None:
    for number in (1, 2):
        saved = os.dup(number)
        stack.callback(os.close, saved)
        stack.callback(os.dup2, saved, number)
    for name in ("stdin", "stdout", "stderr"):
        stack.callback(setattr, sys, name, getattr(sys, name))
    # Closing it closes no other descriptor.
    output = stack.enter_context(open(os.dup(2), "w", errors="backslashreplace"))  # noqa: PTH123, SIM115
    sys.stdout = sys.stderr = output
    os.dup2(2, 1)
    stack.callback(ctypes.CDLL(None).fflush, None)


def run_apart(functions: Iterable[Callable[[], str | None]]) -> list[str | None]:
    """Runs each function in a process of its own, all at once, and returns what they return.

    For a function that raises, ends its process, prints, leaves a process or a thread that ends with the process, or
    does not return before the deadline, this is a description. Raises OSError if no process can be started.
    """
    print(end="", flush=True)
    running = [_Process(function) for function in functions]
    return [process.result() for process in running]


class _Process:
    """A copy of this process which runs a function."""

    def __init__(self, function: Callable[[], str | None]) -> None:
        self._began = monotonic()
        self._report = os.memfd_create("report")
        self._pid = os.fork()
        if self._pid == 0:
            _run(function, self._report)

    def result(self) -> str | None:
        """Waits until the process ends or the deadline has passed, ends it and the processes that it has left."""
        pidfd = os.pidfd_open(self._pid)
        late = False
        while not late and not select.select([pidfd], [], [], max(0, self._remaining()))[0]:
            late = self._remaining() <= 0
        os.close(pidfd)
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(self._pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        with open(self._report, "rb") as report:  # noqa: PTH123, a descriptor
            reported = os.pread(report.fileno(), 4 * _MAX_ERROR, 0)
        if late:
            return f"it takes longer than {DEADLINE:.0f} s"
        if not reported:
            return "it ends the process" + (f" with signal {-status}" if status < 0 else f", with status {status}")
        return reported.removeprefix(_MARK).decode(errors="replace") or None

    def _remaining(self) -> float:
        """The seconds until the deadline."""
        waited = 0.0
        with suppress(OSError, IndexError):  # the kernel does not count this everywhere
            waited = int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e9
        return self._began + DEADLINE + waited - monotonic()


def _run(function: Callable[[], str | None], report: int) -> NoReturn:
    own = os.getpid()
    try:
        _isolate(report)
        atexit._clear()  # what has been registered concerns the other process
        error = function()
        atexit._run_exitfuncs()
        error = error or _left_behind()
    except BaseException as raised:
        error = describe(raised)
    finally:
        if os.getpid() == own:  # otherwise the function has forked
            os.write(_REPORT, _MARK + (error or "").encode(errors="replace"))
        os._exit(0)


def _isolate(report: int) -> None:
    """Leaves the session of the terminal, and all files. Limits the memory."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    printed = os.memfd_create("printed")
    held = os.dup2(report, max(null, printed, _REPORT, report) + 1)
    for descriptor, number in ((null, 0), (printed, 1), (null, 2), (held, _REPORT)):
        os.dup2(descriptor, number)
    os.closerange(_REPORT + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = _MAX_DATA if most == resource.RLIM_INFINITY else min(_MAX_DATA, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def _left_behind() -> str | None:
    """Describes what outlives the function, or disturbs the output of commands."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.current_thread()):
        return "it leaves a thread that would keep the process from ending"
    print(end="", flush=True)
    if os.fstat(1).st_size:
        return "it prints to standard output after its import"
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return "it leaves a process"
    return None
