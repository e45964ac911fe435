"""The fork server, as the server uses it: starts it, asks it for worker processes, and replaces it if it dies or hangs.

The processes of the fork server are in `templates`.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ExecutorUnavailable
from engine.executor.disk_quota import BaseFolder
from engine.executor.templates import FORK, READY
from engine.executor.worker_process import PID, WorkerProcess
from engine.plugin_loader import tried
from engine.registry import load_registry

# Only these environment variables are passed on: the others can hold secrets.
_VARIABLES = frozenset({"PATH", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHASHSEED"})
PROGRAM = "from engine.executor.templates import main; main()"
# Threads of libraries would not survive the fork, and tasks share the CPU cores: each computes on one.
_THREAD_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": "2",  # otherwise each thread of a codec reserves 128 MiB of address space, which is limited
    # A worker keeps the memory of small images for its next task; otherwise each task faults it in again, for up to
    # 30 % of its CPU time. More than this is returned, so that a worker does not outgrow MAX_GROWTH of the pool.
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    # Transparent huge pages: large images, and the first task of a worker, take an eighth of the page faults.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_START_TIMEOUT = 30.0  # seconds until a template is ready, on a busy machine
_FORK_TIMEOUT = 3.0  # seconds; a fork takes milliseconds
_EXIT_TIMEOUT = 2.0  # seconds for a fork server to end after its socket is closed
# Seconds to wait, at each attempt to fork, for a fork server whose socket is closed to end before it is replaced.
_EXIT_TIMEOUTS = (0.0, 0.5, 0.0)
_MAX_REPLY = 8192  # bytes; more than a path can have
_MAX_DESCRIPTORS = 8  # more than such a message has


@dataclass
class _Template:
    """The connection to a template, and whether it is known to have imported its modules."""

    control: socket.socket
    is_ready: bool = False


class ForkServer:
    """Processes with plugins loaded that fork worker processes with the sandbox `layers`.

    Starts at the first fork. Its methods block and are called from one thread at a time. While `closing` is true, it
    is not replaced. It imports `modules` ahead; by default, each template imports its own. The folders of the worker
    processes are below `folder`, by default the system's temporary folder.
    """

    def __init__(self, layers: Collection[str], modules: Collection[str] = (), folder: Path | None = None) -> None:
        self._layers = layers
        self._modules = modules
        self._folder = folder
        self._base_folder: BaseFolder | None = None
        self._running: tuple[subprocess.Popen[bytes], _Template] | None = None
        self._templates: dict[str, _Template] = {}
        self.closing = False

    @property
    def pid(self) -> int | None:
        """The process ID of the supervisor of the fork server; None while there is none."""
        return self._running[0].pid if self._running else None

    def fork(self, template: str = "") -> WorkerProcess:
        """Returns a new worker process of a template, which waits for a request. Raises ExecutorUnavailable.

        Replaces a template that has died, and a fork server that has died or does not answer within seconds.
        """
        name = "" if self._modules else template
        for exit_timeout in _EXIT_TIMEOUTS:
            if self.closing:
                break
            try:
                return self._request_fork(name)
            except TimeoutError:
                self._stop(0)
            except OSError:
                self._drop_ended()
                if self._running is None or not _is_running(self._running[0], exit_timeout):
                    self._stop(0)
        raise ExecutorUnavailable("No process can be started for the conversion.")

    def prepare(self, template: str) -> bool:
        """Starts a template if it has not started. Returns whether a fork need not wait for it."""
        with suppress(OSError):  # `fork` replaces what has ended
            found = self._template(template)
            return found.is_ready or bool(select.select([found.control], [], [], 0)[0])
        return True

    def close(self) -> None:
        """Ends the fork server and all its worker processes."""
        self._stop(_EXIT_TIMEOUT)

    def _request_fork(self, name: str) -> WorkerProcess:
        """Raises OSError if the template cannot fork or has ended, TimeoutError if it does not answer."""
        template = self._template(name)
        if not template.is_ready:
            template.control.settimeout(_START_TIMEOUT)
            template.is_ready = template.control.recv(len(READY)) == READY
        return _new_process(template.control)

    def _template(self, name: str) -> _Template:
        """Returns a template, which the one above forks if it has not started. Raises OSError."""
        if self._running is None:
            self._running = self._start()
        if not name:
            return self._running[1]
        if name not in self._templates:
            above = self._template(name.rpartition("/")[0])
            control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with remote:
                self._templates[name] = _Template(control)
                socket.send_fds(above.control, [FORK + name.encode()], [remote.fileno()])
        return self._templates[name]

    def _drop_ended(self) -> None:
        """Closes the connections to templates that have ended. Those that cannot fork keep their workers."""
        for name, template in [*self._templates.items()]:
            connections = select.poll()
            connections.register(template.control, 0)
            if connections.poll(0):  # reports nothing but the end of a connection
                self._templates.pop(name).control.close()

    def _start(self) -> tuple[subprocess.Popen[bytes], _Template]:
        self._base_folder = BaseFolder(self._folder)
        control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        python_path = os.pathsep.join(entry for entry in sys.path if entry)
        arguments = [str(remote.fileno()), self._base_folder.path, ",".join(self._modules), *self._layers]
        with remote:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, *arguments],
                env={**task_environment(), **tried(load_registry().plugins), "PYTHONPATH": python_path},
                pass_fds=(remote.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # So that the supervisor and the templates can be killed together, and to be one scheduling group.
                start_new_session=True,
            )
        return process, _Template(control)

    def _stop(self, timeout: float) -> None:
        if self._running is not None:
            process, supervisor = self._running
            for template in (supervisor, *self._templates.values()):
                template.control.close()
            self._templates.clear()
            if _is_running(process, timeout):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._running = None
        if self._base_folder is not None:
            self._base_folder.remove()
            self._base_folder = None


def task_environment() -> dict[str, str]:
    """Returns the environment variables of processes for tasks."""
    environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
    return {**environment, **_THREAD_LIMITS, **_MALLOC_SETTINGS}


def _new_process(control: socket.socket) -> WorkerProcess:
    """Raises OSError and TimeoutError."""
    connection, remote_connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.settimeout(_FORK_TIMEOUT)
        with remote_connection, remote_status:
            socket.send_fds(control, [FORK], [remote_connection.fileno(), remote_status.fileno()])
        status.settimeout(_FORK_TIMEOUT)
        reply, descriptors, _, _ = socket.recv_fds(status, _MAX_REPLY, _MAX_DESCRIPTORS)
        if not descriptors:
            raise ConnectionError("the template or the process has ended")
    except OSError:
        connection.close()
        status.close()
        raise
    connection.setblocking(False)
    status.setblocking(False)
    pidfd, *proc_files = descriptors
    (pid,) = PID.unpack(reply[: PID.size])
    return WorkerProcess(pid, Path(os.fsdecode(reply[PID.size :])), connection, status, proc_files, pidfd)


def _is_running(process: subprocess.Popen[bytes], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    return False
