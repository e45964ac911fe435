"""A server of three processes: processes are killed under load, and it has the throughput of all cores."""

import asyncio
import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic

import pytest

from benchmarks.measure import interleaved, throughput_ratio
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.redis_server import RedisServer
from benchmarks.server import running
from benchmarks.workloads import TINY
from tests.support.requests import http
from tests.support.servers.in_process import eventually, parsed, read_response
from tests.support.servers.load import Clients, charged, create_accounts, kill_with_its_processes, repeat
from tests.support.servers.processes import ServerOfProcesses

pytestmark = pytest.mark.long

_PROCESSES = 3
_INTERVAL = 6.0  # seconds between kills
_SUCCESS_LIMIT = 60.0  # seconds until a repeated request has succeeded
_REPLACEMENT_LIMIT = 3.0  # seconds until a new process serves
_ROUNDS, _SECONDS = 5, 4.0  # of each server
_MIN_THROUGHPUT = 1.25  # multiple of the throughput of one process
_REQUEST = b"GET /api/v1/formats HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Kills:
    """Kills processes of a server, and notes how long each takes to be replaced, and which connections break."""

    def __init__(self, server: ServerOfProcesses) -> None:
        self._server = server
        self.seconds: list[float] = []
        self.broken = 0

    def kill(self) -> None:
        """Kills a process, and asks the others on connections that were open before."""
        serving = self._server.log().count(" serves requests")
        with self._server.connections() as connections:
            killed = random.choice(list(connections))
            os.kill(killed, signal.SIGKILL)
            started = monotonic()
            for process, connection in connections.items():
                self.broken += process != killed and not _answers(connection)
        assert eventually(lambda: self._server.log().count(" serves requests") > serving, 60)
        self.seconds.append(monotonic() - started)


def _answers(connection: socket.socket) -> bool:
    connection.sendall(_REQUEST)
    return parsed(read_response(connection)).status_code == 200


def test_processes_are_killed_under_load(
    redis_server: RedisServer, postgres: str, tmp_path: Path, seconds: float
) -> None:
    """Every six seconds, one of three processes is killed while clients convert with idempotency keys.

    Each request succeeds within 60 s and is charged once; connections to other processes stay; a new process serves
    within 3 s.
    """
    (key,) = create_accounts(postgres, 1)
    spent = charged(postgres)
    with ServerOfProcesses(tmp_path, redis_server, _PROCESSES, CONVERTD_DATABASE_URL=postgres) as server:
        kills, clients = Kills(server), Clients(server.api, key, (200, 100))

        async def convert() -> None:
            killing = asyncio.create_task(repeat(int(seconds / _INTERVAL), _INTERVAL, kills.kill))
            await clients.convert_while(killing, concurrency=4)

        asyncio.run(convert())
        assert server.stop() == 0
        log = server.log()
    print(f"\n{clients.succeeded} conversions, the longest {clients.longest:.1f} s; replaced in {kills.seconds} s")
    assert kills.broken == 0
    assert clients.wrong_results == 0
    assert clients.longest < _SUCCESS_LIMIT
    assert charged(postgres) - spent == clients.succeeded > 0
    assert "Traceback" not in log
    assert median(kills.seconds) < _REPLACEMENT_LIMIT


def test_the_processes_end_with_their_parent(redis_server: RedisServer, tmp_path: Path) -> None:
    with ServerOfProcesses(tmp_path, redis_server, _PROCESSES) as server:
        folder = server.metrics_folder()
        kill_with_its_processes(server)
        assert not folder.exists()
        server.start()  # the data folder is free again
        assert server.stop() == 0


def test_a_server_that_cannot_start_ends_with_its_error(redis_server: RedisServer, tmp_path: Path) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    server = ServerOfProcesses(tmp_path, redis_server, _PROCESSES, CONVERTD_DATABASE_URL=unreachable)
    server.launch()
    assert server.process.wait(60) == 1
    assert server.log().count("cannot use the database") == 1
    server.kill()


def test_processes_drain_in_turn(redis_server: RedisServer, tmp_path: Path) -> None:
    """While the first process drains a request that does not end, the others serve."""
    with ServerOfProcesses(tmp_path, redis_server, _PROCESSES) as server:
        with _unfinished_request(server, min(server.serving())):
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            assert eventually(lambda: "stopping: no new connections" in server.log())
            assert http.get(f"{server.url}/healthz").status_code == 200
            assert server.log().count("stopping: no new connections") == 1
        stopping.join()
    assert server.process.returncode == 0


@contextmanager
def _unfinished_request(server: ServerOfProcesses, process: int) -> Iterator[None]:
    """A request to a process whose body is incomplete."""
    with server.connections() as connections:
        connections[process].sendall(
            b"POST /api/v1/account/keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
        )
        yield


def test_two_processes_convert_more_than_one(redis_server: RedisServer, tmp_path: Path) -> None:
    """On two idle cores, with a database that waits for its disk."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    tmp_path.chmod(0o711)
    TINY.write(tmp_path)
    with ExitStack() as stack:
        variants = {}
        for count in (1, 2):
            postgres = stack.enter_context(PostgresServer(binaries, ("fsync=on", "full_page_writes=on")))
            settings = {"CONVERTD_REDIS_URL": redis_server.url, "CONVERTD_DATABASE_URL": postgres.url}
            server = stack.enter_context(running(tmp_path, settings, count))
            variants[str(count)] = server.variant(TINY, tmp_path, _SECONDS, connections=32, accounts=16)
        runs = asyncio.run(interleaved(variants, _ROUNDS))

    assert sum(run.failures for own in runs.values() for run in own) == 0
    assert throughput_ratio(runs["2"], runs["1"]) >= _MIN_THROUGHPUT
