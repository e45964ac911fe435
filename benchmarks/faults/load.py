"""Load beyond what a server can take, and a stop in the middle of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import httpx

from benchmarks import served
from benchmarks.faults.figures import COLUMNS, holds, p99
from benchmarks.report import Report
from benchmarks.served import WORKERS, Answer

_TIMES = 10  # the load, as a multiple of the capacity
_ACCOUNTS = 10
_SMALL, _LARGE = (600, 400), (4000, 3000)


def overload(seconds: int) -> Report:
    """Open-loop load at ten times the capacity, from many accounts: who is served and who is refused."""
    with TemporaryDirectory() as folder:
        keys = served.make_accounts(served.sqlite(Path(folder)), _ACCOUNTS + 1)
        with served.serving(Path(folder)) as (_, url):
            rows = asyncio.run(_overload(url, keys, seconds))
    return Report(f"overload at {_TIMES}x for {seconds} s", COLUMNS, rows)


async def _overload(url: str, keys: list[str], seconds: int) -> tuple[tuple[str | float, ...], ...]:
    content, probe = served.picture(_SMALL), keys.pop()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        capacity = await _capacity(client, url, keys, content)
        pending: list[asyncio.Task[Answer]] = []
        began = perf_counter()
        while (elapsed := perf_counter() - began) < seconds:
            while len(pending) < elapsed * capacity * _TIMES:
                key = keys[len(pending) % len(keys)]
                pending.append(asyncio.create_task(served.ask(client, url, key, content)))
            await asyncio.sleep(0.005)
        ended = perf_counter()
        calm = await served.ask(client, url, probe, content)
        answers = await asyncio.gather(*pending)
    good = [answer for answer in answers if answer.status == 200]
    refused = [answer.seconds for answer in answers if answer.status == 429]
    during = sum(answer.came <= ended for answer in good) / seconds
    return (
        ("requests", float(len(answers)), "", ""),
        ("capacity, a second", capacity, "", ""),
        ("goodput, share of it", during / capacity, ">= 0.9", holds(during >= 0.9 * capacity)),
        ("refused", float(len(refused)), "> 0", holds(bool(refused))),
        ("refused within, p99 s", p99(refused), "< 0.1", holds(p99(refused) < 0.1)),
        (
            "neither served nor refused",
            float(len(answers) - len(good) - len(refused)),
            "0",
            holds(len(answers) == len(good) + len(refused)),
        ),
        ("another's answer afterwards, s", calm.seconds, "<= 5", holds(calm.status == 200 and calm.seconds <= 5)),
    )


async def _capacity(client: httpx.AsyncClient, url: str, keys: list[str], content: bytes) -> float:
    """Conversions a second with as many clients as keep all workers busy."""
    rounds, clients = 15, 2 * WORKERS

    async def one(key: str) -> None:
        for _ in range(rounds):
            await served.ask(client, url, key, content)

    began = perf_counter()
    await asyncio.gather(*(one(key) for key in keys[:clients]))
    return rounds * clients / (perf_counter() - began)


def stop(waiting: int) -> Report:
    """SIGTERM while all workers are busy and others wait."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        keys = served.make_accounts(served.sqlite(folder), 1)
        with served.serving(folder) as (server, url):
            answers, seconds, code = asyncio.run(_stop(folder, server, url, keys[0], waiting))
        held, used = served.held_and_used(served.sqlite(folder), 1)
        left = len(list((folder / "jobs").iterdir()))
    good = sum(answer.status == 200 for answer in answers)
    refused = sum(answer.status == 503 for answer in answers)
    rows = (
        ("running that were served", good, str(WORKERS), holds(good == WORKERS)),
        ("waiting that were refused", refused, str(waiting), holds(refused == waiting)),
        ("exit code", code, "0", holds(code == 0)),
        ("seconds to the exit", seconds, "<= 35", holds(seconds <= 35)),
        ("credits charged", used, str(good), holds(used == good)),
        ("credits held", held, "0", holds(held == 0)),
        ("folders of requests left", left, "0", holds(left == 0)),
    )
    return Report(f"SIGTERM with {WORKERS} running and {waiting} waiting", COLUMNS, rows)


async def _stop(
    folder: Path, server: subprocess.Popen[str], url: str, key: str, waiting: int
) -> tuple[list[Answer], float, int]:
    content = served.picture(_LARGE)
    async with httpx.AsyncClient(timeout=60) as client:
        asked = [asyncio.create_task(served.ask(client, url, key, content)) for _ in range(WORKERS)]
        await served.wait_for_files(folder, "jobs/*/out", WORKERS)
        asked += [asyncio.create_task(served.ask(client, url, key, content)) for _ in range(waiting)]
        await served.wait_for_files(folder, "jobs/*", WORKERS + waiting)
        await asyncio.sleep(0.5)  # until the bodies are there and the requests in line
        began = perf_counter()
        os.kill(server.pid, signal.SIGTERM)
        answers = await asyncio.gather(*asked)
        code = await asyncio.to_thread(server.wait, 60)
    return answers, perf_counter() - began, code
