"""Load beyond the capacity of a server, jobs that do not end, and its shutdown under load."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import monotonic

import httpx

from benchmarks import server_process
from benchmarks.faults.kills import running_jobs
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.report import COLUMNS, Report, Row, at_most, equals, info, p99, required
from benchmarks.server_process import WORKERS
from tests.support.samples.hostile import eps
from tests.support.servers.in_process import eventually, open_work_files

_FACTOR = 10  # load as a multiple of the capacity
_ROUNDS = 3  # the speed of a machine varies by a tenth within minutes: the capacity is measured around each round
_RECOVERY = 5  # seconds
_ACCOUNTS = 10
_SMALL, _MEDIUM, _LARGE = (600, 400), (2000, 1500), (4000, 3000)
_MAX_MEMORY = 512  # MiB, of the server process
_ATTACKERS = 3
_ABANDON_SECONDS = 12  # after which a client disconnects; the server counts this as a job that exceeded its limits
_FILES_OF_A_JOB = 3  # open in the server: the upload, once more to pass it on, and the result


def overload(seconds: int) -> Report:
    """Sends ten times the capacity from several accounts, in rounds of `seconds`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        data, file = folder / "data", folder / "photo.png"
        data.mkdir()
        file.write_bytes(server_process.picture(_MEDIUM))
        keys = server_process.create_accounts(server_process.sqlite_url(data), _ACCOUNTS + 1)
        with server_process.serving(data) as (server, url):
            plan = LoadPlan(url, tuple(keys[:_ACCOUNTS]), str(file), seconds)
            rows = asyncio.run(_overload(plan, keys[-1]))
            memory = _peak_memory(server.pid)
    rows.append(at_most("memory of the server, MiB", memory, _MAX_MEMORY))
    return Report(f"overload at {_FACTOR} times the capacity, {_ROUNDS} rounds of {seconds} s", COLUMNS, tuple(rows))


async def _overload(plan: LoadPlan, other_key: str) -> list[Row]:
    """Runs the rounds. After each, a request with `other_key` measures the recovery."""
    capacity_plan = replace(plan, concurrency=2 * WORKERS)
    capacities, responses, goodputs, later = [_goodput(await generate_load(capacity_plan))], [], [], []
    for _ in range(_ROUNDS):
        overloaded = await generate_load(replace(plan, rate=capacities[-1] * _FACTOR))
        later += await generate_load(replace(plan, keys=(other_key,), seconds=0.1, concurrency=1))
        capacities.append(_goodput(await generate_load(capacity_plan)))
        goodputs.append(_goodput(overloaded) / fmean(capacities[-2:]))
        responses += overloaded
    successes = [response for response in responses if response.status == HTTPStatus.OK]
    refusals = [response for response in responses if response.status == HTTPStatus.TOO_MANY_REQUESTS]
    goodput, refusal_p99 = min(goodputs), p99([response.seconds for response in refusals])
    recovery = max(response.seconds for response in later)
    recovered = recovery <= _RECOVERY and all(response.status == HTTPStatus.OK for response in later)
    return [
        info("requests", len(responses)),
        info("capacity, conversions per second", fmean(capacities)),
        required("goodput of the worst round, share of capacity", goodput, ">= 0.9", met=goodput >= 0.9),
        *(info(f"goodput of round {number}", share) for number, share in enumerate(goodputs, 1)),
        required("refused (429)", len(refusals), "> 0", met=bool(refusals)),
        required("p99 latency of refusals, s", refusal_p99, "< 0.1", met=refusal_p99 < 0.1),
        equals("refused without Retry-After", sum(not response.retry_after for response in refusals), 0),
        equals("responses other than 200, 429", len(responses) - len(successes) - len(refusals), 0),
        at_most("longest latency of a success, s", max((response.seconds for response in successes), default=0.0), 60),
        required("latency for another account afterwards, s", recovery, f"<= {_RECOVERY}", met=recovered),
    ]


def _goodput(responses: list[TimedResponse]) -> float:
    """Returns successful conversions per second in the period in which requests were sent."""
    first, last = min(response.sent_at for response in responses), max(response.sent_at for response in responses)
    successes = sum(response.status == HTTPStatus.OK and response.received_at <= last for response in responses)
    return successes / (last - first)


def _peak_memory(pid: int) -> float:
    """Returns the peak resident memory of the process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def shutdown(folder: Path, queued: int) -> list[Row]:
    """F7: SIGTERM while all workers are busy and other conversions are queued."""
    database_url = server_process.sqlite_url(folder)
    keys = server_process.create_accounts(database_url, 1)
    with server_process.serving(folder) as (server, url):
        responses, seconds, exit_code = asyncio.run(_shut_down(folder, server, url, keys[0], queued))
    held, used = server_process.held_and_used(database_url, 1)
    successes = sum(response.status == HTTPStatus.OK for response in responses)
    refusals = sum(response.status == HTTPStatus.SERVICE_UNAVAILABLE for response in responses)
    return [
        equals("running conversions finished", successes, WORKERS),
        equals("queued conversions refused (503)", refusals, queued),
        equals("exit code", exit_code, 0),
        at_most("seconds until the exit", seconds, 35),
        equals("credits charged", used, successes),
        equals("credits held", held, 0),
        equals("work files left on the disk", len(list((folder / "jobs").iterdir())), 0),
    ]


async def _shut_down(
    folder: Path, server: subprocess.Popen[bytes], url: str, key: str, queued: int
) -> tuple[list[TimedResponse], float, int]:
    """Returns the responses, the seconds until the exit, and the exit code."""
    content = server_process.picture(_LARGE)
    async with httpx.AsyncClient(timeout=60) as client:

        def send(count: int) -> list[asyncio.Task[TimedResponse]]:
            return [asyncio.create_task(server_process.convert(client, url, key, content)) for _ in range(count)]

        requests = send(WORKERS)
        await _wait_until(lambda: len(running_jobs(server.pid, folder)) == WORKERS)
        requests += send(queued)
        await _wait_until(lambda: len(open_work_files(folder, server.pid)) >= _FILES_OF_A_JOB * WORKERS + queued)
        await asyncio.sleep(0.5)  # until the bodies have arrived and the requests are queued
        started = monotonic()
        os.kill(server.pid, signal.SIGTERM)
        responses = await asyncio.gather(*requests)
        exit_code = await asyncio.to_thread(server.wait, 60)
    return responses, monotonic() - started, exit_code


def endless_jobs(folder: Path, divisor: int) -> list[Row]:
    """F19: three accounts whose jobs have kept exceeding their limits send more of them, beside another account."""
    keys = server_process.create_accounts(server_process.sqlite_url(folder), _ATTACKERS + 1)
    with server_process.serving(folder) as (_, url):
        responses = asyncio.run(_convert_beside_endless_jobs(url, keys, max(30, 600 // divisor)))
    return [
        info("conversions of the other account", len(responses)),
        equals("responses other than 200", sum(response.status != HTTPStatus.OK for response in responses), 0),
        at_most("longest latency, s", max(response.seconds for response in responses), 5),
    ]


async def _convert_beside_endless_jobs(url: str, keys: list[str], seconds: float) -> list[TimedResponse]:
    """Converts with the last key for `seconds`, while all others send endless jobs. Returns the responses to it."""
    *attackers, other = keys
    content, endless = server_process.picture(_SMALL), eps("{} loop")

    async def send(key: str, count: int, read_timeout: float) -> None:
        async with httpx.AsyncClient(timeout=read_timeout) as client:
            for _ in range(count):
                await server_process.convert(client, url, key, endless)

    for number in range(0, len(attackers), WORKERS):  # each of their jobs is to start at once
        await asyncio.gather(*(send(key, 3, _ABANDON_SECONDS) for key in attackers[number : number + WORKERS]))
    attacks = [asyncio.create_task(send(key, 10**6, 90)) for key in (*attackers, *attackers)]
    responses, end = [], monotonic() + seconds
    async with httpx.AsyncClient(timeout=60) as client:
        while monotonic() < end:
            responses.append(await server_process.convert(client, url, other, content))
            await asyncio.sleep(0.1)
    for attack in attacks:
        attack.cancel()
    await asyncio.wait(attacks)
    return responses


async def _wait_until(condition: Callable[[], bool]) -> None:
    """Raises AssertionError after 30 s."""
    assert await asyncio.to_thread(eventually, condition, 30)
