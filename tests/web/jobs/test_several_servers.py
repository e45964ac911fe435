"""Servers with one PostgreSQL tell each other about jobs at once. They look for themselves every second otherwise."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest

from tests.conftest import MakeUrl
from tests.support.executors.fake import EndlessExecutor, SwitchedExecutor
from tests.support.requests.http_requests import upload_request
from tests.support.requests.jobs import Site
from tests.support.servers.in_process import Servers, eventually
from web.services.admission import task_costs

_LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"


Start = Callable[[str, int], AbstractContextManager[Site]]


@pytest.fixture(scope="module")
def start(servers: Servers, tmp_path_factory: pytest.TempPathFactory, new_postgres_url: MakeUrl) -> Start:
    """Runs a server with a name and a number of slots."""
    folder, url = tmp_path_factory.mktemp("servers"), new_postgres_url()

    @contextmanager
    def running(name: str, slots: int) -> Iterator[Site]:
        executor = SwitchedExecutor(servers.executor)
        settings: dict[str, Any] = {"database_url": url, "blob_url": f"file://{folder / 'blobs'}", "workers": slots}
        with servers.running(folder / name, executor, rate_limit_free=10_000, **settings) as server:
            yield Site(server, executor)

    return running


@pytest.fixture(scope="module")
def sites(start: Start) -> Iterator[tuple[Site, Site]]:
    """Two servers. The first one has no slot for a second job of any account."""
    with start("first", 1) as first, start("second", 2) as second:
        second.key = first.key
        yield first, second


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers do not look for themselves."""
    for module in ("job_runner", "job_changes"):
        monkeypatch.setattr(f"web.services.jobs.{module}.INTERVAL", 3600.0)


@pytest.fixture(scope="module", autouse=True)
def long_jobs() -> Iterator[None]:
    """All conversions are expected to take long: they have no other slots than jobs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(task_costs, "START", 100.0)
        yield


def run_elsewhere(first: Site, second: Site) -> None:
    """Submits a job to the first server, whose only slot a request has. The second one runs it."""
    endless = first.executor.executor = EndlessExecutor()
    with first.server.connect() as connection:
        request = upload_request('form-data; name="file"; filename="a.jpg"')
        connection.sendall(request.replace(b"KEY", f"Bearer {first.server.key}".encode()))
        assert eventually(lambda: endless.running == 1)
        assert first.get(first.submit(), wait=20)["status"] == "completed"
    assert eventually(lambda: endless.running == 0)
    first.executor.executor = second.executor.executor = first.usual


def settle_down(first: Site, second: Site) -> None:
    """Waits until both servers wait for the interval of the test, not for an earlier one."""
    for site in (first, second):
        site.get(site.submit(), wait=60)


def test_another_server_takes_a_job_at_once_and_its_end_is_told(sites: tuple[Site, Site], alone: None) -> None:
    settle_down(*sites)
    run_elsewhere(*sites)


def test_a_job_is_cancelled_at_once_through_another_server(sites: tuple[Site, Site], alone: None) -> None:
    first, second = sites
    settle_down(first, second)
    endless = first.executor.executor = second.executor.executor = EndlessExecutor()
    jobs = [first.submit() for _ in range(2)]  # the first server has a slot for one
    assert eventually(lambda: endless.running == 2)
    for job in jobs:
        first.end(job)
    assert eventually(lambda: endless.cancelled == 2)
    first.executor.executor = second.executor.executor = first.usual


def test_jobs_of_a_server_that_stops_move_at_once(sites: tuple[Site, Site], start: Start, alone: None) -> None:
    first, second = sites
    with start("third", 2) as third:
        third.key = second.key
        settle_down(first, third)
        endless = third.executor.executor = EndlessExecutor()
        for _ in range(20):  # another server may have been faster
            job = third.submit()
            if third.get(job, wait=1)["status"] == "processing":
                break
        assert eventually(lambda: endless.running == 1)
    assert second.get(job, wait=30)["status"] == "completed"


def test_a_lost_connection_is_reopened(
    sites: tuple[Site, Site], postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_down(*sites)
    with psycopg.connect(postgres, autocommit=True) as connection:
        lost = {*connection.execute(_LISTENERS).fetchall()}
        for (pid,) in lost:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        run_elsewhere(*sites)  # by looking every second
        assert eventually(lambda: len({*connection.execute(_LISTENERS).fetchall()} - lost) == len(lost) >= 2)
    for module in ("job_runner", "job_changes"):
        monkeypatch.setattr(f"web.services.jobs.{module}.INTERVAL", 3600.0)
    settle_down(*sites)
    run_elsewhere(*sites)
