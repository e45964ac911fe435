"""The fork server: `ForkServer` starts it, asks it for worker processes, and replaces it if it dies or hangs.

`main` is the process itself, which forks a worker process per request and reports its exit code.
"""

import asyncio
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, NoReturn

from engine import sandbox
from engine.errors import ExecutorUnavailable
from engine.executor import preload
from engine.executor.disk_quota import BaseFolder, clear_folder, remove_folder, used_memory
from engine.executor.worker import run_worker
from engine.registry import load_registry

PID = struct.Struct("=i")
"""The format of status messages: a process ID, followed by the path of the process's folder, or an exit code.

The first has two descriptors: the process's /proc/self/status and its pidfd.
"""

# Only these environment variables are passed on: the others can hold secrets.
_VARIABLES = frozenset({"PATH", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHASHSEED"})
PROGRAM = "from engine.executor.forkserver import main; main()"
# Threads of libraries would not survive the fork, and jobs share the CPU cores: each computes on one.
_THREAD_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": "2",  # otherwise each thread of a codec reserves 128 MiB of address space, which is limited
    # A worker keeps the memory of small pictures for its next job; otherwise each job faults it in again, for up to
    # 30 % of its CPU time. More than this is returned, so that a worker does not outgrow MAX_GROWTH of the pool.
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    # Transparent huge pages: large pictures, and the first job of a worker, take an eighth of the page faults.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_START_TIMEOUT = 30.0  # seconds until the first fork, on a busy machine
_FORK_TIMEOUT = 3.0  # seconds; a fork takes milliseconds
_EXIT_TIMEOUT = 2.0  # seconds for a fork server to end after its socket is closed
# Seconds to wait, at each attempt to fork, for a fork server whose socket is closed to end before it is replaced.
_EXIT_TIMEOUTS = (0.0, 0.5, 0.0)
_MAX_REPLY = 8192  # bytes; more than a path can have
_THREADS = re.compile(rb"^Threads:\s*(\d+)$", re.MULTILINE)  # at the start of a line: a process chooses its name


@dataclass(eq=False)
class WorkerProcess:
    """A worker process and its own folder.

    `connection` carries requests and replies. `status` receives the exit code from the fork server. `proc_status` is a
    descriptor of the process's status file in /proc, `pidfd` refers to the process.
    """

    pid: int
    folder: Path
    connection: socket.socket
    status: socket.socket
    proc_status: int
    pidfd: int
    ended: bool = False

    def is_waiting(self) -> bool:
        """Returns whether the process is alive and has sent nothing that has not been received."""
        return _is_silent(self.connection)

    def memory_and_threads(self) -> tuple[int, int]:
        """Returns the bytes of its own memory, and its number of threads. Raises OSError if it has ended."""
        text = os.pread(self.proc_status, _MAX_REPLY, 0)
        memory, threads = used_memory(text), _THREADS.search(text)
        if not memory or not threads:  # a process that is about to end has no memory
            raise ProcessLookupError
        return memory, int(threads[1])

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
        os.close(self.proc_status)
        os.close(self.pidfd)


def _is_silent(connection: socket.socket) -> bool:
    """Whether a connection is open and has nothing to receive."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class ForkServer:
    """A process with all plugins loaded that forks worker processes with the sandbox `layers`.

    Starts at the first fork. Its methods block and are called from one thread at a time. While `closing` is true, it
    is not replaced. It imports `modules` ahead, by default the modules of all plugins. The folders of the worker
    processes are below `folder`, by default the system's temporary folder.
    """

    def __init__(self, layers: Collection[str], modules: Collection[str] = (), folder: Path | None = None) -> None:
        self._layers = layers
        self._modules = modules
        self._folder = folder
        self._base_folder: BaseFolder | None = None
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self.closing = False

    @property
    def pid(self) -> int | None:
        """The process ID of the supervisor of the fork server; None while there is none."""
        return self._running[0].pid if self._running else None

    def fork(self) -> WorkerProcess:
        """Returns a new worker process that waits for a request. Raises ExecutorUnavailable.

        Replaces a fork server that has died, or does not answer within seconds.
        """
        for exit_timeout in _EXIT_TIMEOUTS:
            if self.closing:
                break
            timeout = _FORK_TIMEOUT if self._running else _START_TIMEOUT
            try:
                return _request_fork(self._control_socket(), timeout)
            except TimeoutError:
                self._stop(0)
            except OSError:
                if self._running is None or not _is_running(self._running[0], exit_timeout):
                    self._stop(0)
        raise ExecutorUnavailable("No process can be started for the conversion.")

    def close(self) -> None:
        """Ends the fork server and all its worker processes."""
        self._stop(_EXIT_TIMEOUT)

    def _control_socket(self) -> socket.socket:
        if self._running is None:
            self._running = self._start()
        return self._running[1]

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        self._base_folder = BaseFolder(self._folder)
        control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        python_path = os.pathsep.join(entry for entry in sys.path if entry)
        arguments = [str(remote.fileno()), self._base_folder.path, ",".join(self._modules), *self._layers]
        with remote:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, *arguments],
                env={**job_environment(), "PYTHONPATH": python_path},
                pass_fds=(remote.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # So that the supervisor and the serving process can be killed together, and to be one scheduling group.
                start_new_session=True,
            )
        return process, control

    def _stop(self, timeout: float) -> None:
        if self._running is not None:
            process, control = self._running
            control.close()
            if _is_running(process, timeout):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._running = None
        if self._base_folder is not None:
            self._base_folder.remove()
            self._base_folder = None


def job_environment() -> dict[str, str]:
    """Returns the environment variables of processes for jobs."""
    environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
    return {**environment, **_THREAD_LIMITS, **_MALLOC_SETTINGS}


def _request_fork(control: socket.socket, timeout: float) -> WorkerProcess:
    """Raises OSError if the fork server cannot fork or has ended, TimeoutError if it does not answer."""
    connection, remote_connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.settimeout(timeout)
        with remote_connection, remote_status:
            socket.send_fds(control, [b"fork"], [remote_connection.fileno(), remote_status.fileno()])
        status.settimeout(timeout)
        reply, descriptors, _, _ = socket.recv_fds(status, _MAX_REPLY, 2)
        if len(descriptors) != 2:
            raise ConnectionError("the fork server or the process has ended")
    except OSError:
        connection.close()
        status.close()
        raise
    connection.setblocking(False)
    status.setblocking(False)
    proc_status, pidfd = descriptors
    (pid,) = PID.unpack(reply[: PID.size])
    return WorkerProcess(pid, Path(os.fsdecode(reply[PID.size :])), connection, status, proc_status, pidfd)


def _is_running(process: subprocess.Popen[bytes], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    return False


def main() -> None:
    """Runs a fork server until its control socket closes.

    Arguments: the descriptor of the control socket, the folder for the workers' folders, the modules that jobs import
    (separated by commas; empty: all), and the names of the sandbox layers. Preloading takes a second, so it happens in
    a supervisor process that forks the serving process, and forks it again at once if it is killed.
    """
    # The web server handles the first two and closes the control socket. The kernel sends SIGIO on behalf of processes
    # that share a descriptor with this one.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    base_folder, modules, *layers = sys.argv[2:]
    sandbox.lower_session_priority()
    shared_layers = sandbox.enter_network_namespace(layers)
    preload.preload(modules.split(",") if modules else None)
    sandbox.compile_filters(layers)
    path_rules = sandbox.allowed_path_rules(load_registry().programs)
    control = socket.socket(fileno=int(sys.argv[1]))
    while (serving := os.fork()) and os.WIFSIGNALED(os.waitpid(serving, 0)[1]):
        clear_folder(base_folder)
    if not serving:
        apply_layers = partial(sandbox.apply_layers, layers, os.getpid(), path_rules)
        _ChildTable(control, base_folder, lambda folder: shared_layers | apply_layers(folder)).run()
    remove_folder(base_folder)


class _Child(NamedTuple):
    """A worker process: a descriptor that becomes readable when it ends, its status socket and its folder."""

    pidfd: int
    status: int
    folder: str


class _ChildTable:
    """The worker processes by process ID."""

    def __init__(
        self, control: socket.socket, base_folder: str, apply_layers: Callable[[str], Mapping[str, bool]]
    ) -> None:
        self._control = control
        self._base_folder = base_folder
        self._apply_layers = apply_layers
        self._address_space = sandbox.address_space()  # inherited by children
        self._children: dict[int, _Child] = {}
        self._folder_numbers = count(1)

    def run(self) -> None:
        """Forks and reaps until the control socket closes, then kills the remaining children."""
        is_open = True
        while is_open:
            # Not SIGCHLD, which would also report each time that the server stops or continues an idle worker.
            control = self._control.fileno()
            ready, _, _ = select.select([control, *(child.pidfd for child in self._children.values())], [], [])
            if ready != [control]:
                self._reap()
            if control in ready:
                is_open = self._fork()
        for child in list(self._children):
            kill_group(child)
            os.waitpid(child, 0)
            self._remove(child, -signal.SIGKILL)

    def _fork(self) -> bool:
        """Serves one request. Returns False if the control socket is closed."""
        request, descriptors, _, _ = socket.recv_fds(self._control, 64, 2)
        if not request:
            return False
        connection, status = descriptors
        with suppress(OSError):  # process limit or disk full: the sockets close, which the client notices
            folder = f"{self._base_folder}/{next(self._folder_numbers)}"
            os.mkdir(folder, 0o700)  # noqa: PTH102  # Path would write to, and so copy, three times as many pages
            child = os.fork()
            if child == 0:
                self._run_child(connection, status, folder)
            self._children[child] = _Child(os.pidfd_open(child), os.dup(status), folder)
        os.close(connection)
        os.close(status)
        return True

    def _run_child(self, connection: int, status: int, folder: str) -> NoReturn:
        def prepare() -> tuple[Mapping[str, bool], int]:
            _announce(status, folder)
            return self._apply_layers(folder), self._address_space

        run_worker(connection, folder, prepare)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                if child in self._children:
                    kill_group(child)
                    self._remove(child, os.waitstatus_to_exitcode(status))

    def _remove(self, child: int, exitcode: int) -> None:
        pidfd, status, folder = self._children.pop(child)
        os.close(pidfd)
        try:
            os.rmdir(folder)  # noqa: PTH106  # as above
        except OSError:  # not empty; a hostile job can leave so many files that removing them takes long
            os.posix_spawnp("rm", ["rm", "-rf", "--", folder], os.environ)
        with suppress(BrokenPipeError):
            os.write(status, PID.pack(exitcode))
        os.close(status)


def kill_group(leader: int) -> None:
    """Kills the processes of a group. Ignores that it has none."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _announce(status: int, folder: str) -> None:
    """Sends the ID and the folder of this process, its status file and its pidfd."""
    # Opened before the sandbox is applied: the server may not be allowed to open it afterwards.
    descriptors = [os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC), os.pidfd_open(os.getpid())]
    with socket.socket(fileno=status) as client:
        socket.send_fds(client, [PID.pack(os.getpid()) + os.fsencode(folder)], descriptors)
