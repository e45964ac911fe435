"""The fork server, as the server uses it: starts it, asks it for worker processes, and replaces it if it dies or hangs.

The processes of the fork server are in `templates`.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ExecutorUnavailable
from engine.executor.disk_quota import BaseFolder
from engine.executor.process_usage import cpu_seconds, cpu_seconds_of_children, used_memory
from engine.executor.templates import FORK, PID
from engine.plugin_loader import tried
from engine.registry import load_registry
from engine.sandbox import LOW_PRIORITY

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
_START_TIMEOUT = 30.0  # seconds until the first fork, on a busy machine
_FORK_TIMEOUT = 3.0  # seconds; a fork takes milliseconds
_EXIT_TIMEOUT = 2.0  # seconds for a fork server to end after its socket is closed
# Seconds to wait, at each attempt to fork, for a fork server whose socket is closed to end before it is replaced.
_EXIT_TIMEOUTS = (0.0, 0.5, 0.0)
_MAX_REPLY = 8192  # bytes; more than a path can have
_MAX_DESCRIPTORS = 8  # more than such a message has
_THREADS = re.compile(rb"^Threads:\s*(\d+)$", re.MULTILINE)  # at the start of a line: a process chooses its name


@dataclass(eq=False)
class WorkerProcess:
    """A worker process and its own folder.

    `connection` carries requests and replies. `status` receives the exit code from the fork server. `proc_files` are
    descriptors of the files in /proc of `process_usage.open_files`, `pidfd` refers to the process.
    """

    pid: int
    folder: Path
    connection: socket.socket
    status: socket.socket
    proc_files: Sequence[int]
    pidfd: int
    ended: bool = False

    def is_waiting(self) -> bool:
        """Returns whether the process is alive and has sent nothing that has not been received."""
        return _is_silent(self.connection)

    def memory_and_threads(self) -> tuple[int, int]:
        """Returns the bytes of its own memory, and its number of threads. Raises OSError if it has ended."""
        text = os.pread(self.proc_files[0], _MAX_REPLY, 0)
        memory = used_memory(text)
        threads = _THREADS.search(text)
        if not memory or not threads:  # a process that is about to end has no memory
            raise ProcessLookupError
        return memory, int(threads[1])

    def cpu_seconds(self, *, children: bool) -> float:
        """Returns its CPU time; with `children`, also that of all processes that it has started, ended ones included.

        Raises OSError if it has ended.
        """
        seconds = cpu_seconds(self.pid)
        if children:
            stat, *running = [os.pread(file, _MAX_REPLY, 0) for file in self.proc_files[1:]]
            seconds += cpu_seconds_of_children(stat, b"".join(running))
        return seconds

    def lower_priority(self) -> None:
        """Lowers the priority of the threads and children of the process. Only root could raise it again."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self.pid, LOW_PRIORITY)

    async def exitcode(self, seconds: float) -> int | None:
        """Waits up to `seconds` for the process to end.

        Returns its exit code, negative for a signal, or None if the process is still running. Raises
        ExecutorUnavailable if the fork server has died.
        """
        try:
            async with asyncio.timeout(seconds):
                message = await asyncio.get_running_loop().sock_recv(self.status, PID.size)
        except TimeoutError:
            return None
        self.ended = True
        if not message:
            raise ExecutorUnavailable("The conversion's process was killed together with its fork server.")
        return int(PID.unpack(message)[0])

    def stop(self) -> None:
        """Stops the process until `resume`."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a stopped process."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process and all processes of its process group."""
        if not self.ended and _is_silent(self.status):
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)

    def discard(self) -> None:
        """Kills the process and closes its descriptors."""
        self.kill()
        self.connection.close()
        self.status.close()
        for file in (*self.proc_files, self.pidfd):
            os.close(file)


def _is_silent(connection: socket.socket) -> bool:
    """Whether a connection is open and has nothing to receive."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@dataclass
class _Template:
    """The connection to a template, and whether it has forked: before that, it imports modules."""

    control: socket.socket
    has_forked: bool = False


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
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
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
                self._drop_ended(name)
                if self._running is None or not _is_running(self._running[0], exit_timeout):
                    self._stop(0)
        raise ExecutorUnavailable("No process can be started for the conversion.")

    def close(self) -> None:
        """Ends the fork server and all its worker processes."""
        self._stop(_EXIT_TIMEOUT)

    def _request_fork(self, name: str) -> WorkerProcess:
        """Raises OSError if the template cannot fork or has ended, TimeoutError if it does not answer."""
        if self._running is None:
            self._running = self._start()
        if name not in self._templates:
            control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with remote:
                self._templates[name] = _Template(control)
                socket.send_fds(self._running[1], [FORK + name.encode()], [remote.fileno()])
        template = self._templates[name]
        process = _new_process(template.control, _FORK_TIMEOUT if template.has_forked else _START_TIMEOUT)
        template.has_forked = True
        return process

    def _drop_ended(self, name: str) -> None:
        """Closes the connection to a template that has ended. One that cannot fork keeps its workers."""
        template = self._templates.get(name)
        if template is not None:
            template.control.setblocking(False)
            if not _is_silent(template.control):
                self._templates.pop(name).control.close()

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
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
        return process, control

    def _stop(self, timeout: float) -> None:
        if self._running is not None:
            process, control = self._running
            for each in (control, *(template.control for template in self._templates.values())):
                each.close()
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


def _new_process(control: socket.socket, timeout: float) -> WorkerProcess:
    """Raises OSError and TimeoutError."""
    connection, remote_connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.settimeout(timeout)
        with remote_connection, remote_status:
            socket.send_fds(control, [FORK], [remote_connection.fileno(), remote_status.fileno()])
        status.settimeout(timeout)
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
