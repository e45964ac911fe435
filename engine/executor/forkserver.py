"""The client side of a fork server: starts it, asks it for worker processes, and restarts it if it dies."""

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
from engine.executor.forkserver_main import FULL, LIGHT, PID, remove_folder

# The only environment variables that are passed on: the others can hold secrets.
_VARIABLES = frozenset({"PATH", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHASHSEED"})
_PROGRAM = "from engine.executor.forkserver_main import main; main()"
# Threads of libraries would not survive the fork, and jobs share the CPU cores: each computes on one.
_THREAD_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Otherwise each thread of a codec reserves 128 MiB of address space, which is limited.
_MALLOC_SETTINGS = {"MALLOC_ARENA_MAX": "2"}
# Seconds to wait, at each attempt to fork, for a fork server whose socket is closed to end before it is restarted.
_EXIT_TIMEOUTS = (0.0, 0.5, 0.0)
_MAX_REPLY = 8192  # bytes; more than a path can have


@dataclass(frozen=True)
class JobProcess:
    """A worker process and its own folder.

    `connection` carries the job and the reply. `status` receives the exit code from the fork server.
    """

    pid: int
    folder: Path
    connection: socket.socket
    status: socket.socket

    def exitcode(self, timeout: float | None = None) -> int | None:
        """Waits up to `timeout` seconds for the process to end. Blocks.

        Returns its exit code, negative for a signal, or None if the process is still running.
        """
        self.status.settimeout(timeout)
        try:
            message = self.status.recv(PID.size, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return None
        # Without a message the fork server has died, and its worker processes with it.
        return int(PID.unpack(message)[0]) if message else -signal.SIGKILL

    def kill(self) -> None:
        """Kills the process and all processes of its session."""
        if self.exitcode(0.0) is None:
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)

    def close(self, timeout: float) -> None:
        """Closes the connection, which ends an idle process, and kills the process after `timeout` seconds. Blocks."""
        self.connection.close()
        if self.exitcode(timeout) is None:
            self.kill()
            self.exitcode()
        self.status.close()


class ForkServer:
    """A process with all plugins loaded that forks worker processes. Starts at the first fork.

    `layers` are the sandbox layers of worker processes. A full fork server has loaded all lazily imported modules; a
    light one has not, and its workers must not load them.
    """

    def __init__(self, layers: Collection[str], *, full: bool = True) -> None:
        self._layers = layers
        self._mode = FULL if full else LIGHT
        self._lock = threading.Lock()
        self._base_folder = ""  # holds the folders of the worker processes
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def fork(self) -> JobProcess:
        """Returns a new worker process that waits for a job. Blocks. Raises WorkerCrashed."""
        with self._lock:
            for timeout in _EXIT_TIMEOUTS:
                try:
                    return _request_fork(self._control_socket())
                except OSError:
                    if self._running is None or not _is_running(self._running[0], timeout):
                        self._stop()
        raise WorkerCrashed("No process can be started for the conversion.")

    def close(self) -> None:
        """Ends the fork server and all its worker processes. Blocks."""
        with self._lock:
            self._stop()

    def _control_socket(self) -> socket.socket:
        if self._running is None:
            self._running = self._start()
        return self._running[1]

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        self._base_folder = tempfile.mkdtemp(prefix="convertd-")
        Path(self._base_folder).chmod(0o711)  # jobs run as other users; each can reach its own folder
        control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
        python_path = os.pathsep.join(entry for entry in sys.path if entry)
        arguments = [str(remote.fileno()), self._base_folder, self._mode, *self._layers]
        with remote:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *arguments],
                env={**environment, **_THREAD_LIMITS, **_MALLOC_SETTINGS, "PYTHONPATH": python_path},
                pass_fds=(remote.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        return process, control

    def _stop(self) -> None:
        if self._running is not None:
            process, control = self._running
            control.close()
            process.wait()
            self._running = None
        if self._base_folder:  # an empty path would be the current folder
            remove_folder(self._base_folder)
            self._base_folder = ""


def _request_fork(control: socket.socket) -> JobProcess:
    connection, remote_connection = socket.socketpair()
    status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with remote_connection, remote_status:
            socket.send_fds(control, [b"fork"], [remote_connection.fileno(), remote_status.fileno()])
        reply = status.recv(_MAX_REPLY)
        if not reply:
            raise ConnectionError("the fork server has ended")
    except OSError:
        connection.close()
        status.close()
        raise
    connection.setblocking(False)
    (pid,) = PID.unpack(reply[: PID.size])
    return JobProcess(pid, Path(os.fsdecode(reply[PID.size :])), connection, status)


def _is_running(process: subprocess.Popen[bytes], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    return False
