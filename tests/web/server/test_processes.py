"""`convertd serve --processes N`: one server, whose processes share its ports and limits and are replaced."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import ConvertdServer, RedisServer
from config.pricing import DEFAULT_PLANS
from storage.database import Database
from storage.tables import jobs
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually, parsed, read_response
from tests.support.servers.load import charged, create_accounts, sqlite_url
from tests.support.servers.poison import PoisonedServer
from tests.support.servers.processes import ServerOfProcesses

pytestmark = pytest.mark.slow

_PROCESSES = 2
_RATE_LIMIT = 12
_REQUEST = b"GET /api/v1/formats HTTP/1.1\r\nHost: localhost\r\n\r\n"


class PoisonedProcesses(PoisonedServer, ServerOfProcesses):
    """A server of several processes, which jobs can harm."""


@pytest.fixture(scope="module")
def server(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerOfProcesses]:
    limits = {"CONVERTD_RATE_LIMIT_FREE": str(_RATE_LIMIT)}
    with PoisonedProcesses(tmp_path_factory.mktemp("processes"), redis_server, _PROCESSES, **limits) as running:
        yield running


def ask(connection: socket.socket) -> int:
    """The status of a response on an open connection."""
    connection.sendall(_REQUEST)
    return parsed(read_response(connection)).status_code


def requests(server: ServerOfProcesses) -> float:
    """The number of those that `ask` has sent."""
    return server.value("convertd_http_requests_total", route="/api/v1/formats")


def convert(server: ConvertdServer, key: str, content: bytes, target: str = "webp", **headers: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", **headers}
    form: dict[str, Any] = {"files": {"file": ("a", content)}, "data": {"output_format": target}}
    return http.post(f"{server.api}/convert", headers=headers, timeout=60, **form)


def test_the_server_starts_once(server: ServerOfProcesses) -> None:
    log = server.log()
    assert log.count("listening on") == log.count("metrics on") == 1
    assert f"6 workers, {_PROCESSES} processes" in log
    assert [log.count(f"process {number} of {_PROCESSES} serves requests") for number in (1, 2)] == [1, 1]


def test_each_process_has_an_id_of_its_own(server: ServerOfProcesses) -> None:
    """With one id, a process that starts would release what the others hold."""
    ids = [(folder / "server").read_text() for folder in (server.folder, server.folder / "process-2")]
    assert len(set(ids)) == _PROCESSES


def test_connections_are_shared_and_metrics_are_sums(server: ServerOfProcesses) -> None:
    with server.connections() as connections:
        assert connections.keys() == server.serving()
        assert [ask(connection) for connection in connections.values()] == [200] * _PROCESSES
    assert eventually(lambda: requests(server) == _PROCESSES)
    assert server.value("convertd_workers") == 6
    assert server.value("convertd_build_info") == 1
    assert server.value("process_open_fds") > 60


def test_an_account_has_its_rate_limit_over_all_processes(server: ServerOfProcesses) -> None:
    (key,) = create_accounts(sqlite_url(server.folder), 1, paid=False)
    headers = {"Authorization": f"Bearer {key}"}
    with ThreadPoolExecutor(2 * _RATE_LIMIT) as pool:
        asked = pool.map(lambda _: http.get(f"{server.api}/account", headers=headers).status_code, range(30))
    assert sorted(asked) == [200] * _RATE_LIMIT + [429] * (30 - _RATE_LIMIT)


def test_an_account_has_its_limit_of_running_jobs_over_all_processes(server: ServerOfProcesses) -> None:
    (key,) = create_accounts(sqlite_url(server.folder), 1, paid=False)
    content, most = image("BMP", (800, 800)), 0
    with ThreadPoolExecutor(5) as pool:
        sent = [pool.submit(convert, server, key, content, "avif") for _ in range(5)]
        while not all(one.done() for one in sent):
            most = max(most, len(server.jobs()))
            time.sleep(0.02)
    assert [one.result().status_code for one in sent] == [200] * 5
    assert most == DEFAULT_PLANS["free"].max_concurrent


def test_a_killed_process_is_replaced_and_the_others_do_not_notice(server: ServerOfProcesses) -> None:
    """Its metrics stay, and a request that it served can be repeated, and is charged once."""
    (key,) = create_accounts(sqlite_url(server.folder), 1)
    charged_before = charged(sqlite_url(server.folder))
    content, headers = image("BMP", (1600, 1200)), {"Idempotency-Key": "one"}
    requests_before = requests(server)
    with server.connections() as connections, ThreadPoolExecutor(1) as pool:
        assert [ask(connection) for connection in connections.values()] == [200] * _PROCESSES
        sent = pool.submit(convert, server, key, content, "avif", **headers)
        assert eventually(lambda: len(server.jobs()) == 1)
        killed = server.process_of_job()
        others = [connection for process, connection in connections.items() if process != killed]
        os.kill(killed, signal.SIGKILL)
        assert isinstance(sent.exception(), httpx.TransportError)
        assert [ask(connection) for connection in others] == [200] * (_PROCESSES - 1)
        assert eventually(lambda: server.log().count(" serves requests") == _PROCESSES + 1, 60)
        assert len(server.serving()) == _PROCESSES
        assert not list(server.metrics_folder().glob(f"gauge_live*_{killed}.db"))  # else it would count as running
        assert eventually(lambda: convert(server, key, content, "avif", **headers).status_code == 200, 60)
        assert eventually(lambda: requests(server) == requests_before + 2 * _PROCESSES - 1)
    assert charged(sqlite_url(server.folder)) == charged_before + 1
    assert f"({killed}) has ended with exit code -9" in server.log()


@pytest.mark.long
def test_a_process_whose_loop_stands_still_is_replaced_and_its_job_fails_next_time(server: ServerOfProcesses) -> None:
    _check_poison(server, sqlite_url(server.folder))


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.long
def test_poison_ends_with_postgresql(redis_server: RedisServer, tmp_path: Path, url: str) -> None:
    with PoisonedProcesses(tmp_path, redis_server, _PROCESSES, CONVERTD_DATABASE_URL=url) as server:
        _check_poison(server, url)


def _check_poison(server: ServerOfProcesses, url: str) -> None:
    """Two processes end with a trace, although their loop holds the lock of the interpreter. Other jobs are done."""
    (key,) = create_accounts(url, 1)
    spent, ended_before = charged(url), server.log().count("has ended with exit code 1")
    headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}

    def submit(name: str) -> str:
        form: dict[str, Any] = {"files": {"file": (name, image())}, "data": {"output_format": "webp"}}
        keyed = {**headers, "Idempotency-Key": name}
        for _ in range(5):
            with suppress(httpx.TransportError):  # of a process that the poison has ended
                response = httpx.post(f"{server.api}/convert", headers=keyed, timeout=60, **form)
                return str(response.json()["data"]["job_id"])
        raise AssertionError("no process answers")

    ids = [submit(name) for name in ("a.jpg", "poison-held.jpg", "b.jpg")]
    database = Database(url)
    try:
        assert eventually(lambda: all(job.has_ended for job in database.run_blocking(jobs.read_all, ids)), 60)
        found = {job.job_id: job for job in database.run_blocking(jobs.read_all, ids)}
    finally:
        database.close()
    poison = found.pop(ids[1])
    assert {job.status for job in found.values()} == {"completed"}
    assert (poison.status, poison.attempts) == ("failed", 2)
    assert '"worker_crashed"' in str(poison.error)
    assert charged(url) == spent + 2
    log = server.log()
    assert log.count("has ended with exit code 1") == ended_before + 2
    assert log.count("Timeout (0:00:05)!") == 2
    assert "in load_after_deed" in log


def test_sigterm_stops_the_processes_in_turn_and_waits_for_requests(server: ServerOfProcesses) -> None:
    (key,) = create_accounts(sqlite_url(server.folder), 1)
    content = image("BMP", (1200, 1000))
    folder = server.metrics_folder()
    assert folder.is_dir()
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(convert, server, key, content, "avif") for _ in range(2)]
        assert eventually(lambda: len(server.jobs()) == 2)
        assert server.stop() == 0
    assert [one.result().status_code for one in sent] == [200] * 2
    log = server.log()
    assert log.count("stopping the processes one after the other") == log.count("all processes have stopped") == 1
    assert log.count(" INFO convertd.server stopped") == _PROCESSES
    assert "Traceback" not in log
    assert not folder.exists()
