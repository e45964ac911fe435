"""A cluster under load whose workers, servers, scheduler and stores end."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pytest

from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import ConvertdServer, ConvertdWorker, SchedulerProcess, ServerProcess
from benchmarks.redis_server import RedisServer
from tests.support.requests import http
from tests.support.servers.in_process import eventually
from tests.support.servers.load import Clients, assert_no_work_files, charged, create_accounts, repeat
from tests.support.servers.nginx_server import NginxServer

pytestmark = pytest.mark.long

_COLORS = ((200, 60, 60), (60, 190, 70), (70, 80, 200), (190, 190, 70))  # one for each account
_SIZES = ((64, 48), (400, 300), (900, 700), (1600, 1200))  # pixels; the largest files have more than 1 MiB
_WORKERS, _SERVERS = 3, 2
_KILL_INTERVAL, _OUTAGE = 3.0, 2.0  # seconds
_JOIN_TIMEOUT = 120.0  # seconds until the workers have joined the cluster
_HOLD_TIMEOUT = 240  # seconds after which credits are released that could not be released at once
_DELETE_TIMEOUT = 60.0  # seconds until the blobs of jobs are deleted
_LEFT_BY_WORKERS = ("jobs/*", "workers/*", "dask-scratch-space/worker-*")


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
        clients = [
            Clients(api, key, size, color, trust) for key, size, color in zip(keys, _SIZES, _COLORS, strict=True)
        ]
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
