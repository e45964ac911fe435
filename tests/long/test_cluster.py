"""A cluster and several processes under load, whose parts are killed and paused."""

import asyncio
import os
import random
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import pytest

from benchmarks.measure import interleaved, throughput_ratio
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import ConvertdServer, ConvertdWorker, RedisServer, SchedulerProcess, ServerProcess
from benchmarks.server import running
from benchmarks.workloads import TINY
from tests.support.requests import http
from tests.support.servers.in_process import eventually, parsed, read_response
from tests.support.servers.load import (
    Clients,
    assert_no_work_files,
    charged,
    create_accounts,
    kill_with_its_processes,
    repeat,
)
from tests.support.servers.processes import ServerOfProcesses
from tests.support.servers.proxies import NginxServer

pytestmark = pytest.mark.long
_COLORS = ((200, 60, 60), (60, 190, 70), (70, 80, 200), (190, 190, 70))  # one for each account
_SIZES = ((64, 48), (400, 300), (900, 700), (1600, 1200))  # pixels; the largest files have more than 1 MiB
_WORKERS, _SERVERS = 3, 2
_KILL_INTERVAL, _OUTAGE = 3.0, 2.0  # seconds
_JOIN_TIMEOUT = 120.0  # seconds until the workers have joined the cluster
_HOLD_TIMEOUT = 240  # seconds after which credits are released that could not be released at once
_DELETE_TIMEOUT = 60.0  # seconds until the blobs of jobs are deleted
_LEFT_BY_WORKERS = ("jobs/*", "workers/*", "dask-scratch-space/worker-*")
_PROCESSES = 3
_INTERVAL = 6.0  # seconds between kills
_SUCCESS_LIMIT = 60.0  # seconds until a repeated request has succeeded
_REPLACEMENT_LIMIT = 3.0  # seconds until a new process serves
_ROUNDS, _SECONDS = 5, 4.0  # of each server
_MIN_THROUGHPUT = 1.25  # multiple of the throughput of one process
_REQUEST = b"GET /api/v1/formats HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Service:
    """Two servers behind nginx, and the processes that they share. `blobs` is the folder of the blob store."""

    servers: list[ConvertdServer]
    nginx: NginxServer
    postgres: PostgresServer
    redis: RedisServer
    scheduler: SchedulerProcess
    workers: deque[ConvertdWorker]
    blobs: Path

    def blobs_of_jobs(self) -> list[Path]:
        """Returns the inputs and results of jobs in the blob store."""
        return [path for kind in ("input_*", "result_*") for path in self.blobs.glob(kind)]


@contextmanager
def _running(folder: Path) -> Iterator[Service]:
    folder.chmod(0o711)  # otherwise the folders of job processes are not below the data folders
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"

    def new_folder(name: str) -> Path:
        (folder / name).mkdir(mode=0o711)
        return folder / name

    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer(binaries))
        redis = stack.enter_context(RedisServer(new_folder("redis")))
        scheduler = stack.enter_context(SchedulerProcess())
        settings = {
            "CONVERTD_BLOB_URL": new_folder("blobs").as_uri(),
            "CONVERTD_DATABASE_URL": postgres.url,
            "CONVERTD_REDIS_URL": redis.url,
            "CONVERTD_CLUSTER": scheduler.address,
            "CONVERTD_TRUSTED_PROXIES": "127.0.0.1",
        }
        workers = [ConvertdWorker(new_folder(f"worker-{number}"), scheduler.address) for number in range(_WORKERS)]
        servers = [ConvertdServer(new_folder(f"server-{number}"), settings) for number in range(_SERVERS)]
        for process in (*workers, *servers):
            stack.enter_context(process)
        nginx = stack.enter_context(NginxServer(new_folder("nginx"), *(server.port for server in servers)))
        yield Service(servers, nginx, postgres, redis, scheduler, deque(workers), folder / "blobs")


def test_a_cluster_whose_processes_end(tmp_path: Path, seconds: float) -> None:
    """For a minute and a half, a worker is killed every three seconds; meanwhile, a server is killed, and Redis, the
    scheduler and PostgreSQL restart.

    Every conversion succeeds in the end, is charged once, and has the result of its account's image. The workers
    end with 0 and leave no files, and at most the jobs of killed processes leave blobs.
    """
    with _running(tmp_path) as service:
        keys = create_accounts(service.postgres.url, len(_COLORS))
        assert eventually(lambda: all(_is_ready(server) for server in service.servers), _JOIN_TIMEOUT)
        api, trust = f"{service.nginx.url}/api/v1", service.nginx.trust
        clients = [Clients(api, key, size, tint, trust) for key, size, tint in zip(keys, _SIZES, _COLORS, strict=True)]
        kills = int(1.5 * seconds / _KILL_INTERVAL)
        asyncio.run(_convert_during_failures(service, clients, kills))
        assert sum(one.wrong_results for one in clients) == 0
        assert min(one.succeeded for one in clients) > 0
        assert charged(service.postgres.url, _HOLD_TIMEOUT) == sum(one.succeeded for one in clients)
        for server in service.servers:
            assert_no_work_files(server)
        # A worker that is killed while it stores a result, and the killed server, cannot delete their blobs.
        assert eventually(lambda: len(service.blobs_of_jobs()) <= kills + _WORKERS, _DELETE_TIMEOUT)
        assert eventually(lambda: all(worker.answers() for worker in service.workers), _JOIN_TIMEOUT)
        assert [worker.stop() for worker in service.workers] == [0] * _WORKERS
        left = [path for worker in service.workers for kind in _LEFT_BY_WORKERS for path in worker.folder.glob(kind)]
        assert left == []


def _is_ready(server: ConvertdServer) -> bool:
    return bool(http.get(f"{server.url}/readyz", timeout=30).is_success)


async def _convert_during_failures(service: Service, clients: list[Clients], kills: int) -> None:
    """Kills workers one after the other, and interrupts each of the other processes once."""
    others = [
        service.servers[0].restart,
        lambda: _interrupt(service.redis),
        lambda: _interrupt(service.scheduler),
        service.postgres.restart,
    ]
    interval, remaining = kills * _KILL_INTERVAL / (len(others) + 1), iter(others)
    failing = asyncio.gather(
        repeat(kills, _KILL_INTERVAL, lambda: _kill_worker(service.workers)),
        repeat(len(others), interval, lambda: next(remaining)()),
    )
    await asyncio.gather(*(one.convert_while(failing, concurrency=2) for one in clients))


def _kill_worker(workers: deque[ConvertdWorker]) -> None:
    """Kills and starts the worker that has run longest, once it has joined the cluster."""
    workers.rotate(-1)
    if workers[-1].answers():
        assert workers[-1].process.poll() is None, workers[-1].log()
        workers[-1].kill()
        workers[-1].launch()


def _interrupt(process: ServerProcess) -> None:
    process.kill()
    sleep(_OUTAGE)
    process.start()


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


def test_killed_processes_under_load(redis_server: RedisServer, postgres: str, tmp_path: Path, seconds: float) -> None:
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
