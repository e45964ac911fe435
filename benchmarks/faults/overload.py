"""Load beyond what a server can take, and a stop in the middle of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter

import httpx

from benchmarks import server_process
from benchmarks.load_generator import Heard, Plan, carry_out
from benchmarks.report import COLUMNS, Report, Row, at_most, exactly, holds, p99
from benchmarks.server_process import WORKERS, Answer

_TIMES = 10  # the load, as a multiple of the capacity
_ROUNDS = 3  # as the pace of a machine changes by a tenth within minutes; the capacity is taken around each
_RECOVERY = 5  # seconds
_ACCOUNTS = 10
_PHOTO, _LARGE = (2000, 1500), (4000, 3000)
_MOST_MEMORY = 512  # MiB of the server itself


def overload(seconds: int) -> Report:
    """Open-loop load at ten times the capacity, from many accounts, `_ROUNDS` times: who is served, who is not."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        data, file = folder / "data", folder / "photo.png"
        data.mkdir()
        file.write_bytes(server_process.picture(_PHOTO))
        keys = server_process.make_accounts(server_process.sqlite(data), _ACCOUNTS + 1)
        with server_process.serving(data) as (server, url):
            plan = Plan(url, tuple(keys[:_ACCOUNTS]), str(file), seconds)
            rows = asyncio.run(_overload(plan, keys[-1]))
            memory = _most_memory(server.pid)
    rows.append(at_most("memory of the server, MiB", memory, _MOST_MEMORY))
    return Report(f"overload at {_TIMES}x for {_ROUNDS} times {seconds} s", COLUMNS, tuple(rows))


async def _overload(plan: Plan, probe: str) -> list[Row]:
    calm_plan = replace(plan, clients=2 * WORKERS)
    capacities, answers, goodputs, after = [_rate(await carry_out(calm_plan))], [], [], []
    for _ in range(_ROUNDS):
        stressed = await carry_out(replace(plan, rate=capacities[-1] * _TIMES))
        after += await carry_out(replace(plan, keys=(probe,), seconds=0.1, clients=1))
        capacities.append(_rate(await carry_out(calm_plan)))
        goodputs.append(_rate(stressed) / fmean(capacities[-2:]))
        answers += stressed
    good = [answer for answer in answers if answer.status == HTTPStatus.OK]
    refused = [answer for answer in answers if answer.status == HTTPStatus.TOO_MANY_REQUESTS]
    goodput, slowest = min(goodputs), p99([answer.seconds for answer in refused])
    recovery = max(answer.seconds for answer in after)
    recovered = recovery <= _RECOVERY and all(answer.status == HTTPStatus.OK for answer in after)
    return [
        ("requests", float(len(answers)), "", ""),
        ("capacity, a second", fmean(capacities), "", ""),
        ("goodput of the worst round, share of it", goodput, ">= 0.9", holds(goodput >= 0.9)),
        *((f"goodput of round {number}", share, "", "") for number, share in enumerate(goodputs, 1)),
        ("refused", float(len(refused)), "> 0", holds(bool(refused))),
        ("refused within, p99 s", slowest, "< 0.1", holds(slowest < 0.1)),
        exactly("refused without a word on when to return", sum(not answer.retry_after for answer in refused), 0),
        exactly("neither served nor refused", len(answers) - len(good) - len(refused), 0),
        at_most("served within, s", max((answer.seconds for answer in good), default=0.0), 60),
        ("another's answer afterwards, s", recovery, f"<= {_RECOVERY}", holds(recovered)),
    ]


def _rate(answers: list[Heard]) -> float:
    """Conversions a second while requests were made."""
    first, last = min(answer.asked for answer in answers), max(answer.asked for answer in answers)
    served = sum(answer.status == HTTPStatus.OK and answer.came <= last for answer in answers)
    return served / (last - first)


def _most_memory(pid: int) -> float:
    """The most that the process has held at once, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def stop(waiting: int) -> Report:
    """SIGTERM while all workers are busy and others wait."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        keys = server_process.make_accounts(server_process.sqlite(folder), 1)
        with server_process.serving(folder) as (server, url):
            answers, seconds, code = asyncio.run(_stop(folder, server, url, keys[0], waiting))
        held, used = server_process.held_and_used(server_process.sqlite(folder), 1)
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
    folder: Path, server: subprocess.Popen[bytes], url: str, key: str, waiting: int
) -> tuple[list[Answer], float, int]:
    content = server_process.picture(_LARGE)
    async with httpx.AsyncClient(timeout=60) as client:
        asked = [asyncio.create_task(server_process.ask(client, url, key, content)) for _ in range(WORKERS)]
        await server_process.wait_for_files(folder, "jobs/*/result.*", WORKERS)
        asked += [asyncio.create_task(server_process.ask(client, url, key, content)) for _ in range(waiting)]
        await server_process.wait_for_files(folder, "jobs/*", WORKERS + waiting)
        await asyncio.sleep(0.5)  # until the bodies are there and the requests in line
        began = perf_counter()
        os.kill(server.pid, signal.SIGTERM)
        answers = await asyncio.gather(*asked)
        code = await asyncio.to_thread(server.wait, 60)
    return answers, perf_counter() - began, code
