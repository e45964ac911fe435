"""Processes that are killed: those of jobs, the fork servers, the server itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, beside, books, leftovers
from benchmarks.report import Row, at_most, exactly, p99
from tests.support.server_process import free_port
from tests.support.servers import eventually

_SMALL, _LARGE = (600, 400), (4000, 3000)


def jobs(folder: Path, share: int) -> list[Row]:
    """F1: a process below the server is killed every two seconds."""
    count, url = 1000 // share, server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    with server_process.serving(folder) as (server, at):
        before = Clients(at, key, server_process.picture(_SMALL))
        asyncio.run(before.order(max(20, count // 5)))
        after = Clients(at, key, server_process.picture(_SMALL), "after")

        async def disturbed() -> int:
            work = asyncio.create_task(after.order(count))
            return await beside(work, lambda: _kill_one(server.pid), 2)

        kills = asyncio.run(disturbed())
        left = leftovers(folder)
    return [
        ("kills", float(kills), "", ""),
        exactly("orders served", len(after.tries), count),
        at_most("tries of an order", max(after.tries), 7),
        exactly("answers but 200, 429, 500, 503", len(after.statuses() - {200, 429, 500, 503}), 0),
        at_most("p99, times that without kills", p99(after.seconds()) / p99(before.seconds()), 3),
        *books(url, len(before.tries) + count),
        *left,
    ]


def server(folder: Path, share: int) -> list[Row]:
    """F2: the server is killed every five seconds, and started again."""
    count, url, port = 300 // share, server_process.sqlite(folder), free_port()
    (key,) = server_process.make_accounts(url, 1)
    orphans = 0
    with ExitStack() as stack:
        running, at = stack.enter_context(server_process.serving(folder, port=port))
        clients = Clients(at, key, server_process.picture((2000, 1500)))

        def restart() -> None:
            nonlocal running, orphans
            below = _below(running.pid)
            running.kill()
            running.wait()
            eventually(lambda: not any(map(_lives, below)), 2)
            orphans += sum(map(_lives, below))
            running, _ = stack.enter_context(server_process.serving(folder, port=port))

        async def disturbed() -> int:
            return await beside(asyncio.create_task(clients.order(count)), restart, max(2.5, 5 / share))

        kills = asyncio.run(disturbed())
        rows = books(url, count, 120)
    return [
        ("kills", float(kills), "", ""),
        exactly("orders served", len(clients.tries), count),
        exactly("processes left 2 s after a kill", orphans, 0),
        *rows,
    ]


def signals(folder: Path, share: int) -> list[Row]:
    """F15: jobs that crash, are killed as for want of memory, or stand still."""
    count, url = 100 // share, server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    numbers = [(signal.SIGSEGV, signal.SIGKILL)[turn % 2] for turn in range(count - 1)] + [signal.SIGSTOP]
    with server_process.serving(folder) as (running, at):
        answers = asyncio.run(_signalled(running.pid, folder, at, key, numbers))
        after = Clients(at, key, server_process.picture(_SMALL), "after")
        asyncio.run(after.order(4))
        left = leftovers(folder)
    failed = sum(answer.status == 500 for answer in answers)
    return [
        exactly("jobs that failed", failed, count),
        at_most("seconds until the answer", max(answer.seconds for answer in answers), 65),
        exactly("jobs that stood still until their deadline", sum(a.reason == "timeout" for a in answers), 1),
        exactly("orders served afterwards", len(after.tries), 4),
        *books(url, 4),
        *left,
    ]


async def _signalled(
    pid: int, folder: Path, url: str, key: str, numbers: list[signal.Signals]
) -> list[server_process.Answer]:
    answers, content = [], server_process.picture(_LARGE)
    async with httpx.AsyncClient(timeout=90) as client:
        for number in numbers:
            asked = asyncio.create_task(server_process.ask(client, url, key, content))
            while not asked.done():
                await asyncio.wait([asked], timeout=0.05)
                for job in running_jobs(pid, folder):
                    _signal(job, number)
            answers.append(await asked)
    return answers


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def _below(pid: int) -> list[int]:
    return [found for child in _children(pid) for found in (child, *_below(child))]


def running_jobs(pid: int, folder: Path) -> list[int]:
    """The processes below a server that have files of a request open."""
    return [job for server in _children(pid) for job in _below(server) if _has_open(job, folder / "jobs")]


def _has_open(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        return any(link.readlink().is_relative_to(folder) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _kill_one(pid: int) -> None:
    if below := _below(pid):
        _signal(random.choice(below), signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _lives(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
