"""Work that takes long or never ends, crowds of tiny conversions, and workers that stand still, beside others."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import httpx
import pytest

from benchmarks.processes import ConvertdServer, ConvertdWorker, SchedulerProcess
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.samples.hostile import eps
from tests.support.servers.in_process import eventually
from tests.support.servers.load import charged, create_accounts, image, sqlite_url
from web.services.admission.tenant_records import PROVING_JOBS

pytestmark = pytest.mark.long

_ENDLESS = eps("{} loop")
_ATTACKERS = 5
_PROVEN_LIMIT, _NEWCOMER_LIMIT = 5.0, 10.0  # seconds that a request may wait and run
_PROVEN_JOB_LIMIT, _NEW_JOB_LIMIT = 10.0, 60.0  # the same for a job
_TINY_MEDIAN, _TINY_TAIL, _LONG_SHARE = 0.06, 0.4, 0.8  # seconds, and of the photos beside tiny conversions
_TINY_PAUSE, _WAIT = 0.2, 8.0  # seconds
_PAUSE = 0.5  # seconds between requests of an account
_CROWD = 200
_TRIAL_ADDRESS = "192.0.2.1"
_STOP = 9.0  # seconds for which the workers of the cluster stand still; after 10, the conversions would fail
_TIMEOUT = 120.0  # seconds
_JOIN_TIMEOUT = 60.0  # seconds until the workers have joined the cluster


@dataclass(frozen=True)
class Answer:
    """A response and how long it took."""

    status: int
    seconds: float


async def _convert(client: httpx.AsyncClient, key: str, content: bytes, target: str = "jpeg") -> Answer:
    started = monotonic()
    form: dict[str, Any] = {"files": {"file": content}, "data": {"output_format": target}}
    response = await client.post("/convert", headers={"Authorization": f"Bearer {key}"}, **form)
    return Answer(response.status_code, monotonic() - started)


def test_endless_conversions_of_fresh_accounts(tmp_path: Path, seconds: float) -> None:
    """Five fresh accounts, one after the other, convert programs that never end, two at a time.

    Meanwhile, an account with a record of short conversions waits for at most 5 s, and a new account 10 s.
    """
    url = sqlite_url(tmp_path)
    (known,) = create_accounts(url, 1)
    attackers, newcomers = create_accounts(url, _ATTACKERS, paid=False), create_accounts(url, 200, paid=False)
    with ConvertdServer(tmp_path) as server:
        proven, new = asyncio.run(_attacked(server, attackers, known, newcomers, seconds))
    assert {answer.status for answer in (*proven, *new)} == {200}
    assert max(answer.seconds for answer in proven) <= _PROVEN_LIMIT
    assert max(answer.seconds for answer in new) <= _NEWCOMER_LIMIT
    assert charged(url) == PROVING_JOBS + len(proven) + len(new)


async def _attacked(
    server: ConvertdServer, attackers: Iterable[str], known: str, newcomers: Iterable[str], seconds: float
) -> tuple[list[Answer], list[Answer]]:
    """Returns the answers to the known account and to new ones during the attack."""
    async with http.AsyncClient(base_url=server.api, timeout=_TIMEOUT) as client:
        for _ in range(PROVING_JOBS):
            assert (await _convert(client, known, sample("png"))).status == httpx.codes.OK
        attack = asyncio.create_task(_attack(client, attackers, seconds))
        await asyncio.sleep(_PAUSE)
        proven: list[Answer] = []
        new: list[Answer] = []

        async def repeat(keys: Iterable[str], answers: list[Answer]) -> None:
            for key in keys:
                if attack.done():
                    return
                answers.append(await _convert(client, key, sample("png")))
                await asyncio.sleep(_PAUSE)

        await asyncio.gather(repeat([known] * 1000, proven), repeat(newcomers, new))
        await attack
    return proven, new


async def _attack(client: httpx.AsyncClient, keys: Iterable[str], seconds: float) -> None:
    """Each account has its share of the seconds."""
    for key in keys:

        async def endless(key: str = key) -> None:
            while True:
                await _convert(client, key, _ENDLESS)

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds / _ATTACKERS):
                await asyncio.gather(endless(), endless())


@pytest.mark.parametrize(("attackers", "jobs", "address"), [(5, 4, None), (33, 60, "192.0.2.1")])
def test_endless_jobs_of_fresh_accounts(tmp_path: Path, attackers: int, jobs: int, address: str | None) -> None:
    """Beside them, the job of a proven account takes at most 10 s, and that of a new one of another address 60 s."""
    url = sqlite_url(tmp_path)
    (known,) = create_accounts(url, 1)
    bad = create_accounts(url, attackers, paid=False, address=address)
    new = create_accounts(url, 3, paid=False, address="192.0.2.2")
    with ConvertdServer(tmp_path) as server:
        answers = asyncio.run(_beside_jobs(server, bad * jobs, known, new))
    print(f"\n{[round(answer.seconds, 1) for answer in answers]} s")
    assert {answer.status for answer in answers} == {200}
    proven, *others = answers
    assert proven.seconds <= _PROVEN_JOB_LIMIT
    assert max(answer.seconds for answer in others) <= _NEW_JOB_LIMIT


async def _beside_jobs(server: ConvertdServer, bad: list[str], known: str, new: list[str]) -> list[Answer]:
    """Submits a job for each key of `bad`. Returns how long jobs of the known account and of new ones take then."""
    async with http.AsyncClient(base_url=server.api, timeout=_TIMEOUT) as client:
        for _ in range(PROVING_JOBS):
            assert (await _convert(client, known, sample("png"))).status == httpx.codes.OK
        for key in bad:
            await _submit(client, key, _ENDLESS)
        await asyncio.sleep(_WAIT)
        return [await _run_job(client, key) for key in (known, *new)]


async def _submit(client: httpx.AsyncClient, key: str, content: bytes) -> str:
    form: dict[str, Any] = {"files": {"file": content}, "data": {"output_format": "jpeg"}}
    headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}
    response = await client.post("/convert", headers=headers, **form)
    return str(response.json()["data"]["job_id"])


async def _run_job(client: httpx.AsyncClient, key: str) -> Answer:
    started = monotonic()
    job = await _submit(client, key, sample("png"))
    while True:
        headers = {"Authorization": f"Bearer {key}", "Prefer": "wait=30"}
        response = await client.get(f"/jobs/{job}", headers=headers)
        if (status := response.json()["data"]["status"]) not in ("queued", "processing"):
            return Answer(200 if status == "completed" else 500, monotonic() - started)


@pytest.mark.parametrize(("target", "size"), [("avif", (4000, 3000)), ("webp", (4000, 3000))])
def test_tiny_conversions_beside_long_ones(tmp_path: Path, seconds: float, target: str, size: tuple[int, int]) -> None:
    """Four accounts send two photos each, again and again: tiny conversions of another one do not wait for them."""
    url = sqlite_url(tmp_path)
    *busy, key = create_accounts(url, 5)
    with ConvertdServer(tmp_path) as server:
        alone, beside, long = asyncio.run(_beside_photos(server, busy, key, image(size), target, seconds))
    times = sorted(answer.seconds for answer in beside)
    tail = times[round(len(times) * 0.99) - 1]
    print(
        f"\n{len(times)} tiny ones, p50 {median(times) * 1000:.0f} ms, p99 {tail * 1000:.0f} ms, {alone}, {long} long"
    )
    assert {answer.status for answer in beside} == {200}
    assert median(times) <= _TINY_MEDIAN
    assert tail <= _TINY_TAIL
    assert long[1] >= long[0] * _LONG_SHARE


async def _beside_photos(
    server: ConvertdServer, busy: list[str], key: str, photo: bytes, target: str, seconds: float
) -> tuple[int, list[Answer], tuple[int, int]]:
    """Returns the number of tiny conversions alone, the answers to them beside photos, and the photos without and with.

    The photos come as fast as they are converted.
    """
    tiny, done = image((64, 64)), 0

    async with http.AsyncClient(base_url=server.api, timeout=_TIMEOUT) as client:

        async def photos(own: str) -> None:
            nonlocal done
            while True:
                converted = (await _convert(client, own, photo, target)).status == httpx.codes.OK
                done += converted
                await asyncio.sleep(0 if converted else _PAUSE)

        async def tiny_ones(limit: float) -> list[Answer]:
            answers, end = [], monotonic() + limit
            while monotonic() < end:
                answers.append(await _convert(client, key, tiny))
                await asyncio.sleep(_TINY_PAUSE)
            return answers

        alone = len(await tiny_ones(5))
        for own in busy:  # a slot is kept for accounts with a record
            for _ in range(PROVING_JOBS):
                await _convert(client, own, tiny)
        tasks = [asyncio.create_task(photos(own)) for own in busy for _ in range(2)]
        await asyncio.sleep(_WAIT)
        done = 0
        await asyncio.sleep(seconds / 2)
        without, done = done, 0
        beside = await tiny_ones(seconds / 2)
        counts = without, done
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return alone, beside, counts


def test_endless_trials_of_an_address(tmp_path: Path) -> None:
    """One address uses up its trials with programs that never end; meanwhile, others get results within 10 s."""
    with ConvertdServer(tmp_path, {"CONVERTD_TRUSTED_PROXIES": "127.0.0.1"}) as server:
        bad, good = asyncio.run(_trials(server))
    assert set(bad) <= {500, 429}
    assert {answer.status for answer in good} == {200}
    assert max(answer.seconds for answer in good) <= _NEWCOMER_LIMIT


async def _trials(server: ConvertdServer) -> tuple[list[int], list[Answer]]:
    """Returns the statuses of the endless trials, and the answers to the other addresses."""
    async with http.AsyncClient(base_url=server.url, timeout=_TIMEOUT) as client:

        async def trial(address: str, content: bytes) -> Answer:
            headers, started = {"Origin": server.url, "X-Forwarded-For": address}, monotonic()
            form: dict[str, Any] = {"files": {"file": content}, "data": {"output_format": "jpeg"}}
            response = await client.post("/try/convert", headers=headers, **form)
            return Answer(response.status_code, monotonic() - started)

        attack = asyncio.gather(*(trial(_TRIAL_ADDRESS, _ENDLESS) for _ in range(8)))
        good = []
        for number in range(2, 100):
            await asyncio.sleep(_PAUSE)
            if attack.done():
                break
            good.append(await trial(f"192.0.2.{number}", sample("png")))
        return [answer.status for answer in await attack], good


def test_a_crowd_of_tiny_conversions(tmp_path: Path) -> None:
    """200 requests at once, which are done within seconds: none is refused."""
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with ConvertdServer(tmp_path) as server:
        answers = asyncio.run(_crowd(server, key))
    assert [answer.status for answer in answers] == [200] * _CROWD


async def _crowd(server: ConvertdServer, key: str) -> list[Answer]:
    """Sends the conversions from four addresses: a server accepts 64 connections of each."""
    transports = [httpx.AsyncHTTPTransport(local_address=f"127.0.0.{number}") for number in range(1, 5)]
    clients = [http.AsyncClient(base_url=server.api, timeout=_TIMEOUT, transport=one) for one in transports]
    tiny = image((64, 64))
    try:
        return await asyncio.gather(*(_convert(clients[number % len(clients)], key, tiny) for number in range(_CROWD)))
    finally:
        for client in clients:
            await client.aclose()


def test_workers_of_a_cluster_that_stand_still_restrict_nobody(tmp_path: Path) -> None:
    """Both workers are stopped for 9 s, in which each of four new accounts abandons a conversion; three times.

    Nobody is restricted: there is no such line in the log, and all accounts convert afterwards.
    """
    url = sqlite_url(tmp_path)
    blobs = {"CONVERTD_BLOB_URL": (tmp_path / "blobs").as_uri()}
    keys = create_accounts(url, 4, paid=False)
    for name in ("blobs", "worker-0", "worker-1"):
        (tmp_path / name).mkdir(mode=0o711)
    with SchedulerProcess() as scheduler:
        workers = [ConvertdWorker(tmp_path / f"worker-{number}", scheduler.address, blobs) for number in range(2)]
        with (
            workers[0],
            workers[1],
            ConvertdServer(tmp_path, {**blobs, "CONVERTD_CLUSTER": scheduler.address}) as server,
        ):
            assert eventually(lambda: http.get(f"{server.url}/readyz").is_success, _JOIN_TIMEOUT)
            asyncio.run(_abandon_while_stopped(server, workers, keys))
            answers = asyncio.run(_all(server, keys))
            assert [answer.status for answer in answers] == [200] * len(keys)
            assert "is restricted" not in server.log()


async def _abandon_while_stopped(server: ConvertdServer, workers: list[ConvertdWorker], keys: list[str]) -> None:
    """Stops the workers, and gives up a conversion of each account shortly before they continue; three times."""
    async with http.AsyncClient(base_url=server.api, timeout=_TIMEOUT) as client:
        for _ in range(3):
            for worker in workers:
                worker.stall()
            abandoned = [asyncio.create_task(_convert(client, key, sample("png"))) for key in keys]
            done, _ = await asyncio.wait(abandoned, timeout=_STOP)
            assert not done
            for task in abandoned:
                task.cancel()
            for worker in workers:
                worker.resume()
            await asyncio.sleep(1)


async def _all(server: ConvertdServer, keys: list[str]) -> list[Answer]:
    async with http.AsyncClient(base_url=server.api, timeout=_TIMEOUT) as client:
        return await asyncio.gather(*(_convert(client, key, sample("png")) for key in keys))
