"""A service that a server needs stands still, is killed or is cut off, and the server is killed, while clients send."""

import asyncio
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import (
    ConvertdServer,
    ConvertdWorker,
    RedisServer,
    SchedulerProcess,
    ServerProcess,
    process_tree,
    send_signal,
)
from tests.support.requests import http
from tests.support.samples.forms import FORM, part
from tests.support.servers import network
from tests.support.servers.in_process import eventually
from tests.support.servers.load import Clients, assert_no_work_files, charged, create_accounts, repeat, sqlite_url
from tests.support.servers.mixed_load import Answer, MixedClients
from tests.support.servers.stores import S3Server

pytestmark = pytest.mark.long
_BEFORE, _OUTAGE, _AFTER = 3.0, 15.0, 5.0  # seconds
_LIMIT, _CLUSTER_LIMIT = 10.0, 15.0  # seconds until an answer
_STOP_LIMIT, _CLUSTER_STOP_LIMIT = 46.0, 40.0  # seconds from SIGTERM to the end
_DRAIN = 25.0  # seconds that a server waits at least for a request in progress
_UNTIL_STOPPED = 2.0  # seconds of an outage before SIGTERM
_READY_TIMEOUT = 60.0  # seconds
_RELEASE_TIMEOUT = 30.0  # seconds until nothing is held, when all services respond
_BLOCK, _INTERVAL, _SIZE = 2000, 0.1, 900_000  # bytes, seconds and bytes of an upload that outlasts a shutdown
_FAULTS = ("stopped", "killed", "cut off")
_KILL_INTERVAL = 2.0  # seconds
_HOLD_TIMEOUT = 240  # seconds after which credits are released that could not be released at once


@dataclass(frozen=True)
class Service:
    """A server, and by name what it needs."""

    server: ConvertdServer
    needs: Mapping[str, ServerProcess]
    database_url: str

    def is_ready(self) -> bool:
        """Whether the server can convert."""
        return bool(http.get(f"{self.server.url}/readyz", timeout=30).is_success)


@contextmanager
def _running(folder: Path, *, cluster: bool) -> Iterator[Service]:
    folder.chmod(0o711)  # otherwise the folders of job processes are not below the data folders
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with network.own_network(), ExitStack() as stack:
        database, store, redis = PostgresServer(binaries), S3Server(), RedisServer(folder)
        needs: dict[str, ServerProcess] = {"database": database, "store": store, "redis": redis}
        settings = {
            "CONVERTD_DATABASE_URL": database.url,
            "CONVERTD_BLOB_URL": store.url("long"),
            "CONVERTD_REDIS_URL": redis.url,
            **store.environment,
        }
        if cluster:
            needs["scheduler"] = scheduler = SchedulerProcess()
            needs["worker"] = ConvertdWorker(folder / "worker", scheduler.address)
            settings["CONVERTD_CLUSTER"] = scheduler.address
        for process in needs.values():
            stack.enter_context(process)
        server = stack.enter_context(ConvertdServer(folder / "server", settings))
        service = Service(server, needs, database.url)
        assert eventually(service.is_ready, _READY_TIMEOUT)
        yield service


@contextmanager
def _outage(process: ServerProcess, fault: str) -> Iterator[None]:
    """The service is lost during the block."""
    if fault == "cut off":
        network.cut_off(process.port)
        yield
        network.reconnect(process.port)
    elif fault == "killed":
        process.kill()
        yield
        process.start()
    else:
        processes = process_tree(process.pid)
        for pid in processes:
            send_signal(pid, signal.SIGSTOP)
        yield
        for pid in processes:
            send_signal(pid, signal.SIGCONT)


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("need", ["database", "store", "redis"])
def test_a_server_without(tmp_path: Path, need: str, fault: str) -> None:
    """Every request is answered within 10 s, and succeeds or may be repeated; all conversions are charged once.

    SIGTERM ends the server within 46 s.
    """
    with _running(tmp_path, cluster=False) as service:
        _check(service, need, fault, _LIMIT, _STOP_LIMIT)


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("need", ["database", "store", "scheduler", "worker"])
def test_a_server_of_a_cluster_without(tmp_path: Path, need: str, fault: str) -> None:
    """The same within 15 s, and 40 s."""
    with _running(tmp_path, cluster=True) as service:
        _check(service, need, fault, _CLUSTER_LIMIT, _CLUSTER_STOP_LIMIT)


def _check(service: Service, need: str, fault: str, limit: float, stop_limit: float) -> None:
    (key,) = create_accounts(service.database_url, 1)
    clients = MixedClients(service.server.api, key)
    lost = service.needs[need]
    asyncio.run(clients.send_while(_lose(lost, fault)))
    assert eventually(service.is_ready, _READY_TIMEOUT)
    forgotten = need == "store" and fault == "killed"  # the store of the tests keeps nothing
    assert [answer for answer in clients.answers if not _is_right(answer, limit, forgotten=forgotten)] == []
    assert clients.wrong_results == 0
    assert 0 <= charged(service.database_url, _RELEASE_TIMEOUT) - clients.converted <= clients.unknown
    assert_no_work_files(service.server)

    assert asyncio.run(_stop_without(service, key, [lost], fault)) <= stop_limit
    assert list((service.server.folder / "jobs").iterdir()) == []
    service.server.start()
    charged(service.database_url, _RELEASE_TIMEOUT)


def _is_right(answer: Answer, limit: float, *, forgotten: bool) -> bool:
    if answer.seconds > limit:
        return False
    if answer.status == 503:
        return answer.may_be_repeated and answer.retry_after > 0
    return (
        answer.status == 200 or (answer.status > 0 and answer.may_be_repeated) or (forgotten and answer.status == 404)
    )


async def _lose(process: ServerProcess, fault: str) -> None:
    await asyncio.sleep(_BEFORE)
    with ExitStack() as outage:
        await asyncio.to_thread(outage.enter_context, _outage(process, fault))
        await asyncio.sleep(_OUTAGE)
        await asyncio.to_thread(outage.close)
    await asyncio.sleep(_AFTER)


async def _stop_without(service: Service, key: str, processes: Sequence[ServerProcess], fault: str) -> float:
    """Returns how long it takes to stop the server while services are lost and clients send requests, in seconds."""
    clients = MixedClients(service.server.api, key)
    load = asyncio.create_task(clients.send_while(asyncio.Event().wait()))
    await asyncio.sleep(_BEFORE)
    with ExitStack() as outage:
        for process in processes:
            await asyncio.to_thread(outage.enter_context, _outage(process, fault))
        await asyncio.sleep(_UNTIL_STOPPED)
        started = monotonic()
        assert await asyncio.to_thread(service.server.stop) == 0
        seconds = monotonic() - started
        load.cancel()
        await asyncio.wait([load])
        await asyncio.to_thread(outage.close)
    return seconds


@pytest.mark.parametrize("fault", ["stopped", "cut off"])
@pytest.mark.parametrize(("cluster", "limit"), [(False, _STOP_LIMIT), (True, _CLUSTER_STOP_LIMIT)])
def test_a_server_stops_without_anything_that_it_needs(tmp_path: Path, fault: str, cluster: bool, limit: float) -> None:
    """Also while a client sends an upload that takes longer."""
    with _running(tmp_path, cluster=cluster) as service:
        (key,) = create_accounts(service.database_url, 1)
        assert _DRAIN < asyncio.run(_stop_during_upload(service, key, fault)) <= limit
        service.server.start()
        charged(service.database_url, _RELEASE_TIMEOUT)


async def _stop_during_upload(service: Service, key: str, fault: str) -> float:
    uploading = asyncio.create_task(_upload_slowly(service.server.port, key))
    seconds = await _stop_without(service, key, [*service.needs.values()], fault)
    uploading.cancel()
    await asyncio.wait([uploading])
    return seconds


async def _upload_slowly(port: int, key: str) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: {FORM['Content-Type']}\r\n"
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST /api/v1/files/upload HTTP/1.1\r\n{head}Content-Length: {_SIZE}\r\n\r\n".encode())
        content = part(bytes(_SIZE), 'name="file"; filename="a.png"')
        for start in range(0, _SIZE, _BLOCK):
            writer.write(content[start : start + _BLOCK])
            await writer.drain()
            await asyncio.sleep(_INTERVAL)


async def _convert_during(clients: Clients, seconds: float, action: Callable[[], object]) -> None:
    """Converts while the action repeats."""
    await clients.convert_while(asyncio.create_task(repeat(int(seconds / _KILL_INTERVAL), _KILL_INTERVAL, action)))


def test_the_processes_of_a_server_are_killed(tmp_path: Path, seconds: float) -> None:
    """For a minute, one of the fork server, its workers and their jobs is killed every two seconds.

    Every conversion succeeds after at most seven attempts, and is charged once.
    """
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with ConvertdServer(tmp_path) as server:
        clients = Clients(server.api, key)

        def kill_process() -> None:
            if processes := process_tree(server.pid)[1:]:
                send_signal(random.choice(processes), signal.SIGKILL)

        asyncio.run(_convert_during(clients, seconds, kill_process))
        assert_no_work_files(server)
    assert set(clients.statuses) <= {200, 429, 500, 503}
    assert clients.most_attempts <= 7
    assert clients.wrong_results == 0
    assert charged(sqlite_url(tmp_path)) == clients.succeeded > 0


def test_postgresql_restarts(tmp_path: Path, seconds: float) -> None:
    """For a minute, PostgreSQL restarts every two seconds. Every conversion succeeds in the end and is charged once."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with PostgresServer(binaries) as postgres:
        (key,) = create_accounts(postgres.url, 1)
        with ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": postgres.url}) as server:
            clients = Clients(server.api, key)
            asyncio.run(_convert_during(clients, seconds, postgres.restart))
            assert_no_work_files(server)
            spent = charged(postgres.url, _HOLD_TIMEOUT)
    assert clients.wrong_results == 0
    assert spent == clients.succeeded > 0
