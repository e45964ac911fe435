"""Server processes that can be killed, stalled and restarted: convertd, its cluster, Redis, and other programs.

The tests use them too. They are here because benchmarks run without the dependencies of the tests.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from types import MappingProxyType, TracebackType
from typing import Self

WORKERS = 2
"""Jobs at a time of a ConvertdServer."""

CONVERTD = str(Path(sys.executable).with_name("convertd"))
"""The path of the command."""

_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 90.0  # seconds
_POLL_INTERVAL = 0.02  # seconds
_FIRST_PORT, _PORTS = 12_000, 20_000
_PARENT = 1  # index in process_status
_UNLIMITED = str(10**9)
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ServerProcess(ABC):
    """A program that serves at a port of its own, which is the same after a restart. `variables` are added to its
    environment.
    """

    def __init__(self, variables: Mapping[str, str] = _NOTHING) -> None:
        self.port = free_port()
        self.variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command that starts it."""

    def answers(self) -> bool:
        """Whether it is ready. By default, whether it accepts connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # also the end of this program by a signal meanwhile
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the latest start."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """The ID of the process of the latest start."""
        return self.process.pid

    def start(self) -> None:
        """Starts the program and waits until it is ready. Raises RuntimeError with its log if it ends or takes long."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts the program, after the end of its previous process."""
        self.kill()
        # The log goes to a file: reading a pipe meanwhile would compete for CPU.
        self._log_file = TemporaryFile()  # noqa: SIM115, the end of the process closes it
        environment = {**os.environ, **self.variables}
        self._process = subprocess.Popen(self.command, stdout=self._log_file, stderr=self._log_file, env=environment)

    def wait_until_ready(self) -> None:
        """Waits until the program is ready. Raises RuntimeError with its log if it ends or takes long."""
        deadline = monotonic() + _START_TIMEOUT
        while not self.answers():
            if self.process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"{self.command[0]} did not start: {self.log()}")
            sleep(_POLL_INTERVAL)

    def log(self) -> str:
        """Returns what the program has written to its output since its latest start."""
        if not self._log_file.closed:
            size = os.fstat(self._log_file.fileno()).st_size
            self._log = os.pread(self._log_file.fileno(), size, 0).decode(errors="replace")
        return self._log

    def kill(self) -> None:
        """Kills the process if it runs. Its child processes have to end by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.log()
            self._log_file.close()

    def kill_tree(self) -> None:
        """Kills the process and all processes below it if it runs, as the end of a control group does."""
        if self._process is not None and self._process.poll() is None:
            for pid in process_tree(self.pid):
                send_signal(pid, signal.SIGKILL)

    def restart(self) -> None:
        """Kills the process and starts it again."""
        self.kill()
        self.start()

    def stop(self) -> int:
        """Ends the process with SIGTERM. Returns its exit code. Raises TimeoutExpired."""
        self.process.terminate()
        return self.process.wait(_STOP_TIMEOUT)

    def stall(self) -> None:
        """Stops the process: connections are accepted, but not served."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues after `stall`."""
        self.process.send_signal(signal.SIGCONT)


class ConvertdServer(ServerProcess):
    """`convertd serve` with this data folder. `settings` are environment variables; rate limits are off by default.

    `processes` serve; more than one need the setting of Redis.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] = _NOTHING, processes: int = 1) -> None:
        usual = {"CONVERTD_DATA_DIR": str(folder), "CONVERTD_METRICS_PORT": "0", "CONVERTD_WORKERS": str(WORKERS)}
        unlimited = {f"CONVERTD_RATE_LIMIT_{tier}": _UNLIMITED for tier in ("PAID", "FREE", "ANONYMOUS")}
        super().__init__({**usual, **unlimited, **settings})
        self.folder = folder
        self.processes = processes

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """The base URL of the API."""
        return f"{self.url}/api/v1"

    @property
    def command(self) -> Sequence[str]:
        return CONVERTD, "serve", "--port", str(self.port), "--processes", str(self.processes)

    def answers(self) -> bool:
        """Whether it has logged that it listens, which is after its startup. It accepts connections earlier."""
        log = self.log()
        return "listening on" in log and (self.processes == 1 or log.count(" serves requests") >= self.processes)


class ConvertdWorker(ServerProcess):
    """`convertd worker` with this data folder, for one scheduler. `settings` are environment variables."""

    def __init__(
        self, folder: Path, scheduler: str, settings: Mapping[str, str] = _NOTHING, jobs: int = 2, memory: str = "4GiB"
    ) -> None:
        super().__init__({"CONVERTD_DATA_DIR": str(folder), "CONVERTD_METRICS_PORT": "0", **settings})
        self.folder = folder
        self._limits = ("--scheduler", scheduler, "--jobs", str(jobs), "--memory", memory)

    @property
    def command(self) -> Sequence[str]:
        return CONVERTD, "worker", "--host", "127.0.0.1", "--port", str(self.port), *self._limits

    def answers(self) -> bool:
        """Whether it has joined the cluster."""
        return "joined the cluster" in self.log()

    def kill(self) -> None:
        """Kills the worker and all processes below it."""
        self.kill_tree()
        super().kill()


class SchedulerProcess(ServerProcess):
    """The scheduler of a cluster. Uses TLS if `tls` has Dask's variables."""

    SETTINGS = MappingProxyType({"allowed-failures": 0, "no-workers-timeout": "2s", "worker-ttl": "30s"})

    def __init__(self, tls: Mapping[str, str] = _NOTHING) -> None:
        names = {name: f"DASK_DISTRIBUTED__SCHEDULER__{name.upper().replace('-', '_')}" for name in self.SETTINGS}
        super().__init__({**{names[name]: str(value) for name, value in self.SETTINGS.items()}, **tls})
        self.address = f"{'tls' if tls else 'tcp'}://127.0.0.1:{self.port}"

    @property
    def command(self) -> Sequence[str]:
        program = (sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1")
        return *program, "--port", str(self.port), "--dashboard-address", ":0"


class RedisServer(ServerProcess):
    """A Redis server with its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            "dir": str(self._folder),
        }
        return ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def free_port() -> int:
    """Returns a free port, outside the range from which Linux takes the ports of outgoing connections.

    Otherwise, such a connection could take the port while its server restarts.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", _FIRST_PORT + secrets.randbelow(_PORTS)))
            return int(probe.getsockname()[1])


def child_processes(pid: int) -> list[int]:
    """Returns the process IDs of the children of a process."""
    return [child for child, parent in _parents().items() if parent == pid]


def process_tree(pid: int) -> list[int]:
    """Returns the process IDs of a process and its descendants."""
    parents, tree = _parents(), [pid]
    for process in tree:  # the loop adds descendants
        tree += [child for child, parent in parents.items() if parent == process]
    return tree


def process_status(pid: int) -> list[str]:
    """Returns the fields of /proc/<pid>/stat after the name of the process; none if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _parents() -> dict[int, int]:
    """The parents of all processes by process ID."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid: int(status[_PARENT]) for pid in pids if (status := process_status(pid))}


def send_signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
