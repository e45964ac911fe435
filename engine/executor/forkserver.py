"""A process with plugins loaded and none of our secrets, which forks the jobs' processes ahead of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import WorkerCrashed
from engine.executor.forkserver_main import FULL, LIGHT, PID, remove

# Nothing else of the environment comes along: there are passwords in it.
_VARIABLES = frozenset({"PATH", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHASHSEED"})
_PROGRAM = "from engine.executor.forkserver_main import main; main()"
# Threads of libraries would not survive the fork, and jobs share the machine: each computes on one.
_THREAD_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Else each thread of a codec reserves 128 MiB of addresses, which are bounded.
_MALLOC_SETTINGS = {"MALLOC_ARENA_MAX": "2"}
_EXIT_TIMEOUTS = (0.0, 0.5, 0.0)  # seconds between the end of a process's lines and its own, at each try
_KILLED = -signal.SIGKILL
_MAX_REPLY = 8192  # bytes: more than a path can have


@dataclass(frozen=True)
class JobProcess:
    """A process that waits for a job, and its own folder: our end of the line to it, and of one that tells its end."""

    pid: int
    folder: Path
    line: socket.socket
    status: socket.socket

    def exitcode(self, patience: float | None = None) -> int | None:
        """Waits for the process to end, so many seconds; a signal's number is negative, None is not yet. Blocks."""
        self.status.settimeout(patience)
        try:
            told = self.status.recv(PID.size, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return None
        return int(PID.unpack(told)[0]) if told else _KILLED  # without the fork server nobody tells, but it is dead

    def kill(self) -> None:
        """Ends the process and whatever it started: it leads a session of its own."""
        if self.exitcode(0.0) is None:
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)

    def close(self, patience: float) -> None:
        """Hangs up and waits for the process to end, as it does without a job or after its answer. Blocks."""
        self.line.close()
        if self.exitcode(patience) is None:
            self.kill()
            self.exitcode()
        self.status.close()


class ForkServer:
    """Starts with the first fork, and again should it have died. Its processes get the `layers` of the sandbox.

    They have loaded all that jobs use, or, unless `full`, go without what has been put off.
    """

    def __init__(self, layers: Collection[str], *, full: bool = True) -> None:
        self._layers = layers
        self._loaded = FULL if full else LIGHT
        self._turn = threading.Lock()
        self._home = ""  # of the folders of its processes
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def fork(self) -> JobProcess:
        """A process that waits for a job. Blocks. Raises WorkerCrashed if there cannot be one."""
        with self._turn:
            for patience in _EXIT_TIMEOUTS:
                try:
                    return _fork(self._started())
                except OSError:
                    if self._running is None or not _is_running(self._running[0], patience):
                        self._stop()
        raise WorkerCrashed("No process can be started for the conversion.")

    def close(self) -> None:
        """Ends it, with all its processes. Blocks."""
        with self._turn:
            self._stop()

    def _started(self) -> socket.socket:
        if self._running is None:
            self._home = tempfile.mkdtemp(prefix="convertd-")
            Path(self._home).chmod(0o711)  # jobs run as other users, and each finds its own folder
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            chosen = {name: value for name, value in os.environ.items() if name in _VARIABLES}
            path = os.pathsep.join(entry for entry in sys.path if entry)
            with theirs:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-c",
                        _PROGRAM,
                        str(theirs.fileno()),
                        self._home,
                        self._loaded,
                        *self._layers,
                    ],
                    env={**chosen, **_THREAD_LIMITS, **_MALLOC_SETTINGS, "PYTHONPATH": path},
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            self._running = process, ours
        return self._running[1]

    def _stop(self) -> None:
        if self._running is not None:
            process, control = self._running
            control.close()
            process.wait()
            self._running = None
        if self._home:  # an empty name would be that of the folder we are in
            remove(self._home)
            self._home = ""


def _fork(control: socket.socket) -> JobProcess:
    line, their_line = socket.socketpair()
    status, their_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with their_line, their_status:
            socket.send_fds(control, [b"fork"], [their_line.fileno(), their_status.fileno()])
        told = status.recv(_MAX_REPLY)
        if not told:
            raise ConnectionError("the fork server is gone")
    except OSError:
        line.close()
        status.close()
        raise
    line.setblocking(False)
    (pid,) = PID.unpack(told[: PID.size])
    return JobProcess(pid, Path(os.fsdecode(told[PID.size :])), line, status)


def _is_running(process: subprocess.Popen[bytes], patience: float) -> bool:
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        return True
    return False
