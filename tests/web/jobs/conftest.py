"""A server for all tests of jobs in a module, and an account for each test."""

from collections.abc import Iterator
from typing import Any

import pytest

from storage.tables import ledger_audit
from tests.support.executors.fake import SwitchedExecutor
from tests.support.requests.jobs import Site
from tests.support.servers.in_process import Servers, eventually


@pytest.fixture(scope="module")
def running(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    executor = SwitchedExecutor(servers.executor)
    # Of four slots, jobs may use two while requests come, as many as an account may.
    settings: dict[str, Any] = {"rate_limit_free": 10_000, "rate_limit_paid": 10_000, "workers": 4}
    with servers.running(tmp_path_factory.mktemp("jobs"), executor, **settings) as server:
        yield Site(server, executor)


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    site = Site(running.server, running.executor)
    yield site
    site.executor.executor = running.usual
    for job in site.send("GET", "/jobs?limit=100").json()["data"]["jobs"]:
        if job["finished_at"] is None:
            site.end(job)
    assert eventually(lambda: not [blob for blob in site.blobs() if blob.startswith("job_")])
    assert site.credits()[1] == 0
    assert site.server.database.run_blocking(ledger_audit.check) == ()
