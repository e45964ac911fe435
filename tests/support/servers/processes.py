"""A server of several processes, and which of them does what."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse

from benchmarks.processes import ConvertdServer, RedisServer, child_processes, free_port, process_tree
from tests.support.requests import http
from tests.support.servers.load import running_jobs

_MAX_CONNECTIONS_PER_CLIENT = 60


class ServerOfProcesses(ConvertdServer):
    """`convertd serve --processes` with its metrics. `settings` are environment variables."""

    def __init__(self, folder: Path, redis: RedisServer, processes: int, **settings: str) -> None:
        port = free_port()
        self.metrics_url = f"http://127.0.0.1:{port}/metrics"
        variables = {"CONVERTD_REDIS_URL": redis.url, "CONVERTD_METRICS_PORT": str(port), "CONVERTD_WORKERS": "6"}
        super().__init__(folder, {**variables, **settings}, processes)

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric over all samples with these labels."""
        samples = [sample for family in parse(http.get(self.metrics_url).text) for sample in family.samples]
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    def serving(self) -> set[int]:
        """The process IDs of the processes that serve, or are about to."""
        return set(child_processes(self.pid))

    def jobs(self) -> set[int]:
        """The process IDs of running jobs."""
        return set(running_jobs(self)) - self.serving()

    def process_of_job(self) -> int:
        """The process that serves the only running job."""
        (job,) = self.jobs()
        return next(pid for pid in self.serving() if job in process_tree(pid))

    def metrics_folder(self) -> Path:
        """The folder of the files in which the processes keep their metrics."""
        (process, *_) = self.serving()
        maps = Path(f"/proc/{process}/maps").read_text()
        return Path(next(line.split()[5] for line in maps.splitlines() if "convertd-metrics-" in line)).parent

    @contextmanager
    def connections(self) -> Iterator[dict[int, socket.socket]]:
        """A connection to each process, by process ID. The server distributes those that are opened."""
        found: dict[int, socket.socket] = {}
        with ExitStack() as stack:
            for _ in range(_MAX_CONNECTIONS_PER_CLIENT):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=30))
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
                found.setdefault(self._owner(connection), connection)
                if len(found) == self.processes:
                    break
            yield found

    def _owner(self, connection: socket.socket) -> int:
        ports = f":{self.port:04X}", f":{connection.getsockname()[1]:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        (inode,) = [row[9] for row in rows if (row[1][-5:], row[2][-5:]) == ports]
        return next(pid for pid in self.serving() if f"socket:[{inode}]" in _open_files(pid))


def _open_files(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed since it was listed
            found.append(str(entry.readlink()))
    return found
