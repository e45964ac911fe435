"""Servers and their workers are killed while jobs run: every job ends, is charged once if it is completed, and is told.

A webhook gets a message about each end at least once, under one id.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import httpx
import pytest

from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import ConvertdServer, process_tree, send_signal
from storage.database import Database, Transaction
from storage.tables import models, webhooks
from storage.tables.webhooks import EVENTS
from tests.support.samples.generated import sample
from tests.support.servers.in_process import eventually
from tests.support.servers.load import assert_no_work_files, charged, create_accounts, sqlite_url
from tests.support.servers.receiver import Received, Receiver, Send, reply

pytestmark = pytest.mark.long

R = TypeVar("R")

JOBS, ACCOUNTS = 10_000, 50
REACHABLE = {"CONVERTD_URL_ALLOW": "127.0.0.0/8"}
KILL_INTERVAL = 5.0  # seconds
LONGEST = 1_800.0  # seconds until all jobs have ended
_CLIENTS = 16
_RETRY_DELAY = 0.3  # seconds
_PAUSE = 60.0  # seconds
_OLD = 86_400 / 2  # seconds; older than the blobs that may not have a row yet


async def submit_all(apis: Sequence[str], keys: Sequence[str], number: int) -> set[str]:
    """Submits jobs until each is accepted, by any server. Returns their ids."""
    numbers, accepted = iter(range(number)), set[str]()
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=_CLIENTS)) as client:

        async def submit() -> None:
            for job in numbers:
                key = keys[job % len(keys)]
                headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(job), "Prefer": "respond-async"}
                form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "bmp"}}
                for attempt in count():
                    api = apis[(job + attempt) % len(apis)]
                    try:
                        response = await client.post(f"{api}/convert", headers=headers, **form)
                    except httpx.TransportError:
                        response = None
                    if response is not None and response.status_code == 202:
                        accepted.add(response.json()["data"]["job_id"])
                        break
                    assert response is None or response.status_code in (409, 429, 500, 503), response.text
                    await asyncio.sleep(_RETRY_DELAY)

        await asyncio.gather(*(submit() for _ in range(_CLIENTS)))
    return accepted


class Killer:
    """Kills a random process of the servers again and again, and starts servers again that were killed."""

    def __init__(self, servers: Sequence[ConvertdServer]) -> None:
        self._servers = servers
        self.killed: Counter[str] = Counter()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(KILL_INTERVAL)
            await asyncio.to_thread(self._kill)

    def _kill(self) -> None:
        server = random.choice(self._servers)
        target = random.choice(process_tree(server.pid)) if random.random() < 0.7 else server.pid
        self.killed["server" if target == server.pid else "worker"] += 1
        send_signal(target, signal.SIGKILL)
        if target == server.pid:
            server.restart()


def read(url: str, function: Callable[[Transaction], R]) -> R:
    database = Database(url)
    try:
        return database.run_blocking(function)
    finally:
        database.close()


def states(url: str) -> Mapping[str, int]:
    """The number of jobs by state."""
    table = models.Job
    return read(url, lambda transaction: Counter(state for (state,) in transaction.rows(table.select(table.status))))


def unfinished(url: str) -> int:
    found = states(url)
    return found["queued"] + found["processing"]


def add_webhooks(url: str, receiver: Receiver) -> None:
    """Creates a webhook for each account."""

    def add(transaction: Transaction) -> None:
        for (account,) in transaction.rows(models.Account.select(models.Account.id)):
            webhooks.add(transaction, account, receiver.url, EVENTS)

    read(url, add)


def messages(receiver: Receiver) -> Mapping[str, set[str]]:
    """The ids of the messages that have arrived about each job."""
    found = defaultdict[str, set[str]](set)
    for request in [*receiver.requests]:
        found[json.loads(request.body)["data"]["job_id"]].add(request.headers["webhook-id"])
    return found


async def run_jobs(
    url: str, servers: Sequence[ConvertdServer], receiver: Receiver, disturb: Callable[[], None] | None
) -> Counter[str]:
    """Runs the jobs of all accounts while processes are killed. `disturb` is called twice meanwhile."""
    keys, killer = create_accounts(url, ACCOUNTS), Killer(servers)
    add_webhooks(url, receiver)
    killing = asyncio.create_task(killer.run())
    submitting = asyncio.create_task(submit_all([server.api for server in servers], keys, JOBS))
    deadline, disturbances = monotonic() + LONGEST, 0
    while not submitting.done() or await asyncio.to_thread(unfinished, url) > 0:
        assert monotonic() < deadline, states(url)
        assert not killing.done() or killing.exception() is None
        await asyncio.sleep(KILL_INTERVAL)
        if disturb is not None and disturbances < 2:
            disturbances += 1
            await asyncio.to_thread(disturb)
    killing.cancel()
    assert len(await submitting) == JOBS
    return killer.killed


def check(url: str, servers: Sequence[ConvertdServer], receiver: Receiver, blobs: Path) -> None:
    """Every job has ended and is told, the completed ones are charged, and nothing is left of the others."""
    found = states(url)
    assert eventually(lambda: len(messages(receiver)) == JOBS, 120), len(messages(receiver))
    assert {len(ids) for ids in messages(receiver).values()} == {1}
    assert found["completed"] + found["failed"] == JOBS
    assert charged(url) == found["completed"] > JOBS * 0.95
    lane = models.Lane
    lanes = read(url, lambda transaction: transaction.rows(lane.select(lane.waiting, lane.running, lane.bytes)))
    assert set(lanes) == {(0, 0, 0)}
    for path in blobs.iterdir():
        os.utime(path, (path.stat().st_atime - _OLD, path.stat().st_mtime - _OLD))
    for server in servers:
        server.restart()  # which sweeps blobs without a row

    def strays() -> set[str]:
        results = read(url, lambda transaction: transaction.rows(models.File.select(models.File.result)))
        return {path.name for path in blobs.iterdir()} - {result for (result,) in results}

    assert eventually(lambda: not strays(), 60)
    for server in servers:
        assert_no_work_files(server)


def test_servers_and_workers_are_killed_with_sqlite(tmp_path: Path) -> None:
    with Receiver() as receiver, ConvertdServer(tmp_path, REACHABLE) as server:
        url = sqlite_url(tmp_path)
        killed = asyncio.run(run_jobs(url, [server], receiver, None))
        assert min(killed["server"], killed["worker"]) > 0
        check(url, [server], receiver, tmp_path / "blobs")


def test_servers_and_workers_are_killed_with_postgresql(tmp_path: Path) -> None:
    """Two servers share the database, which is restarted twice, and the blobs."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    blobs = tmp_path / "blobs"
    with Receiver() as receiver, PostgresServer(binaries) as postgres:
        settings = {"CONVERTD_DATABASE_URL": postgres.url, "CONVERTD_BLOB_URL": blobs.as_uri(), **REACHABLE}
        with ConvertdServer(tmp_path / "one", settings) as one, ConvertdServer(tmp_path / "two", settings) as two:
            killed = asyncio.run(run_jobs(postgres.url, [one, two], receiver, postgres.restart))
            assert min(killed["server"], killed["worker"]) > 0
            check(postgres.url, [one, two], receiver, blobs)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_server_takes_the_job_of_a_silent_one(tmp_path: Path, how: signal.Signals, database: str) -> None:
    """It waits half a minute at most. A server that was paused for that time, and goes on, changes nothing."""
    asked, blobs = list[float](), tmp_path / "blobs"

    def respond(request: Received, send: Send) -> None:
        asked.append(monotonic())
        if len(asked) == 1:  # of the server that is stopped
            receiver.stopped.wait(_PAUSE)
        reply(200, sample("png"))(request, send)

    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver(respond))
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        if database == "postgresql":
            binaries = find_binaries()
            assert binaries is not None, "PostgreSQL is not installed here"
            url = stack.enter_context(PostgresServer(binaries)).url
        settings = {"CONVERTD_DATABASE_URL": url, "CONVERTD_BLOB_URL": blobs.as_uri(), **REACHABLE}
        silent = stack.enter_context(ConvertdServer(tmp_path / "one", settings))
        (key,) = create_accounts(url, 1)
        form = {"url": f"{receiver.url}/a.png", "output_format": "bmp"}
        headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}
        accepted = httpx.post(f"{silent.api}/convert", headers=headers, data=form)
        assert accepted.status_code == 202, accepted.text
        assert eventually(lambda: len(asked) == 1)
        other = stack.enter_context(ConvertdServer(tmp_path / "two", settings))
        stopped = monotonic()
        for pid in process_tree(silent.process.pid) if how is signal.SIGSTOP else [silent.process.pid]:
            send_signal(pid, how)
        job = f"{other.api}/jobs/{accepted.json()['data']['job_id']}"

        def ended() -> Any:
            found = httpx.get(job, headers=headers).json()["data"]
            return found if found["status"] in ("completed", "failed") else None

        assert eventually(lambda: ended() is not None, 90)
        assert ended()["status"] == "completed"
        print(f"\n{how.name} with {database}: the job was taken {asked[1] - stopped:.1f} s later")
        if how is signal.SIGSTOP:
            for pid in process_tree(silent.process.pid):
                send_signal(pid, signal.SIGCONT)
            silent.process.wait(60)  # as every server whose event loop stood still
        assert ended()["attempts"] == 2
        account = models.Account
        held = account.select(account.credits_held)
        assert eventually(lambda: read(url, lambda transaction: transaction.rows(held)) == [(0,)], 60)
        assert charged(url) == 1
