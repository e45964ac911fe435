"""The parent of a server's processes: forks them, replaces those that end, and stops them one after the other.

It serves nothing itself and has one thread, so that it can fork at any time.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from web.services.operation.processes import ProcessGroup, ServerProcess

log = logging.getLogger("convertd.server")

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
_SHARED_MEMORY = Path("/dev/shm")  # a full disk would kill processes that write to a mapped file
_SHORT_LIFE = 2.0  # seconds; a process that ends sooner is replaced after a pause
_PAUSE = 1.0  # seconds
_TURNS = 10.0  # seconds for which, in all, processes wait for their turn to stop


class Supervisor:
    """Runs `count` processes. Must be created before prometheus_client is imported."""

    def __init__(self, count: int) -> None:
        self._group = ProcessGroup(count)
        folder = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        os.environ[_METRICS_VARIABLE] = tempfile.mkdtemp(prefix="convertd-metrics-", dir=folder)
        self._parent_is_gone, self._parent_lives = os.pipe()  # the second end is open in the parent only
        self._running: dict[int, tuple[int, float]] = {}  # number and start by process ID
        self._due: dict[int, float] = {}  # the numbers of missing processes, with the times to start them

    def run(self, listeners: Sequence[socket.socket]) -> ServerProcess:
        """Returns in each process, which then serves on the inherited listeners. In the parent, raises SystemExit.

        The first process starts alone: if it cannot serve, the server ends with its exit code.
        """
        gc.freeze()  # objects that the garbage collector visits in a fork are copied
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # or the end of a process could go unnoticed
        try:
            if (process := self._fork_first()) is not None:
                return process
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            self._due = dict.fromkeys(range(1, self._group.count), monotonic())
            if (process := self._replace_until_stopped()) is not None:
                return process
            for listener in listeners:
                listener.close()
            self._stop()
            log.info("all processes have stopped")
            raise SystemExit(0)
        except BaseException:
            remove_metrics()
            raise

    def _fork_first(self) -> ServerProcess | None:
        """Forks the first process and, in the parent, waits until it serves. Raises SystemExit if it ends before."""
        reader, writer = os.pipe()
        if (process := self._fork(0, ready=writer)) is not None:
            os.close(reader)
            return process
        os.close(writer)
        if not os.read(reader, 1):
            exitcodes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self._running]
            raise SystemExit(exitcodes[0] if exitcodes else 1)
        os.close(reader)
        return None

    def _fork(self, number: int, ready: int | None = None) -> ServerProcess | None:
        """Returns the process in the new process, and None in the parent, which tries again later if it cannot fork."""
        try:
            pid = os.fork()
        except OSError as error:
            log.error("process %d cannot be started: %s", number + 1, error.strerror)
            self._due[number] = monotonic() + _PAUSE
            return None
        if pid:
            self._running[pid] = number, monotonic()
            self._due.pop(number, None)
            return None
        os.close(self._parent_lives)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent stops them in turn
        return self._group.process(number, parent=self._parent_is_gone, ready=ready)

    def _replace_until_stopped(self) -> ServerProcess | None:
        """Keeps all processes running until SIGTERM or SIGINT. Returns the process in each new process."""
        while True:
            for number in [number for number, due in self._due.items() if due <= monotonic()]:
                if (process := self._fork(number)) is not None:
                    return process
            pause = max(min(self._due.values()) - monotonic(), 0) if self._due else None
            if self._wait(pause):
                return None

    def _wait(self, seconds: float | None) -> bool:
        """Waits for a signal, and takes note of the processes that have ended. Returns whether to stop."""
        caught = signal.sigwaitinfo(_SIGNALS) if seconds is None else signal.sigtimedwait(_SIGNALS, seconds)
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            self._note_end(pid, os.waitstatus_to_exitcode(status))
        return caught is not None and caught.si_signo != signal.SIGCHLD

    def _note_end(self, pid: int, exitcode: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415, see _METRICS_VARIABLE

        mark_process_dead(pid)  # its counters stay
        number, started = self._running.pop(pid)
        lived = monotonic() - started
        self._due[number] = monotonic() + (_PAUSE if lived < _SHORT_LIFE else 0.0)
        log.info("process %d (%d) has ended with exit code %d", number + 1, pid, exitcode)

    def _stop(self) -> None:
        """Stops the processes one after the other, the next one at the latest when its turn has come.

        The others serve meanwhile. A second signal kills all.
        """
        log.info("stopping the processes one after the other")
        turn = _TURNS / self._group.count
        for pid in sorted(self._running, key=self._running.__getitem__):
            if pid in self._running:
                os.kill(pid, signal.SIGTERM)
                self._wait_for_end({pid}, turn)
        self._wait_for_end(set(self._running), None)

    def _wait_for_end(self, pids: set[int], seconds: float | None) -> None:
        """Waits until these processes have ended, for some seconds at most. Kills all at a second signal."""
        deadline = None if seconds is None else monotonic() + seconds
        while pids & self._running.keys() and (deadline is None or monotonic() < deadline):
            if self._wait(None if deadline is None else max(deadline - monotonic(), 0)):
                for pid in self._running:
                    os.kill(pid, signal.SIGKILL)


def remove_metrics() -> None:
    """Removes the files of the metrics, after or instead of the parent."""
    shutil.rmtree(os.environ[_METRICS_VARIABLE], ignore_errors=True)
