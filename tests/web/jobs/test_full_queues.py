"""Many waiting clients, and an account with many queued jobs beside another one."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import httpx
import pytest

from engine.errors import StepFailed
from engine.executor import Task, TaskResult
from storage.tables import models
from tests.support.executors.fake import EndlessExecutor
from tests.support.requests.jobs import ASYNC, Site
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually

CLIENTS = 200
QUEUED = 100_000
LENGTH = 2.0  # seconds of a job
_THREADS = 20  # more than before: pools that grow with their first use

COPY_JOB = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
    INSERT INTO job (id, account, number, state, operation, input_format, output_format, request, inputs, size, holds,
                     done, fence, attempts, crashes, created_at)
    SELECT 'job_copy' || n, account, number + n, 'queued', operation, input_format, output_format, request, 0, 0, 1,
           0, 0, 0, 0, created_at FROM job, numbers WHERE id = :job
    """


class SlowExecutor(EndlessExecutor):
    """Fails after a time."""

    async def run(self, task: Task, account: str, *args: Any, **kwargs: Any) -> TaskResult:
        self.running += 1
        try:
            await asyncio.sleep(LENGTH)
        finally:
            self.running -= 1
        raise StepFailed("It takes long, and fails.")


@pytest.mark.long
def test_waiting_clients_need_no_threads(site: Site) -> None:
    """Half of them wait for the response, and half follow the events."""
    site.executor.executor = EndlessExecutor()
    job = site.submit()
    url = f"{site.server.api}/jobs/{job['job_id']}"
    before = threading.active_count()

    async def wait(client: httpx.AsyncClient, number: int) -> str:
        if number % 2:
            response = await client.get(url, headers={"Prefer": "wait=60"})
            return str(response.json()["data"]["status"])
        response = await client.get(f"{url}/events")
        assert response.status_code == 200, response.text
        last = [line for line in response.text.splitlines() if line.startswith("data: ")][-1]
        return str(json.loads(last.removeprefix("data: "))["status"])

    async def wait_all() -> tuple[list[str], int, float]:
        auth = {"Authorization": f"Bearer {site.key}"}
        async with AsyncExitStack() as stack:
            transports = [httpx.AsyncHTTPTransport(local_address=f"127.0.1.{number}") for number in range(1, 21)]
            clients = [httpx.AsyncClient(transport=one, timeout=90, headers=auth) for one in transports]
            for client in clients:
                await stack.enter_async_context(client)
            turns = zip(range(CLIENTS), cycle(clients), strict=False)
            waiting = asyncio.gather(*(wait(client, number) for number, client in turns))
            await asyncio.sleep(10)  # seconds until all wait
            threads, ended = threading.active_count(), time.monotonic()
            await asyncio.to_thread(site.end, job)
            return await waiting, threads, time.monotonic() - ended

    statuses, threads, seconds = asyncio.run(wait_all())
    assert statuses == ["cancelled"] * CLIENTS
    assert threads <= before + _THREADS
    assert seconds < 10


@pytest.fixture
def crowded(site: Site) -> Iterator[Site]:
    """A site where another account has 100,000 queued jobs, which use all slots."""
    other = Site(site.server, site.executor)
    other.key = site.server.account(50, purchased=1)
    file = site.server.upload(image(), key=other.key)["file_id"]
    slow = site.executor.executor = SlowExecutor()
    accepted = other.send("POST", f"/files/{file}/convert", json={"output_format": "png"}, headers=ASYNC)
    first, account, database = accepted.json()["data"]["job_id"], other.account_id(), site.server.database
    lane, job = models.Lane, models.Job

    def fill(transaction: Any) -> None:
        transaction.connection.execute_sql(COPY_JOB, {"count": QUEUED, "job": first})
        transaction.execute(lane.update(waiting=lane.waiting + QUEUED).where(lane.account == account))

    def empty(transaction: Any) -> None:
        transaction.execute(job.delete().where((job.account == account) & (job.status == "queued")))
        transaction.execute(lane.update(waiting=0).where(lane.account == account))

    try:
        assert eventually(lambda: slow.running == 1)
        database.run_blocking(fill)
        other.end(accepted.json()["data"])
        assert eventually(lambda: slow.running == 4, 30)
        yield site
    finally:
        database.run_blocking(empty)
        assert eventually(lambda: slow.running == 0, 30)


@pytest.mark.long
def test_many_queued_jobs_delay_those_of_others_by_one_at_most(crowded: Site) -> None:
    """A slot is free for the job after one length at most, and it takes one itself."""
    for _ in range(5):
        started = time.monotonic()
        job = crowded.submit()
        assert crowded.get(job, wait=60)["status"] == "failed"
        assert time.monotonic() - started < 2 * LENGTH + 1
