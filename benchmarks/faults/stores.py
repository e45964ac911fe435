"""What a server stands on goes away for a while: Redis, room on the disk, the database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, beside, books, leftovers
from benchmarks.load_generator import Heard, Plan, carry_out
from benchmarks.report import Row, at_most, exactly, holds, p99
from tests.support.postgres import PostgresServer, find_binaries
from tests.support.redis_server import RedisServer

_SMALL = (64, 48)
_LEASE = 240  # seconds in which credits come back that could not be given back at once
_ADDRESSES = 8  # a server takes 64 connections of each
_REDIS_RATE, _LOCK_RATE = 50, 20  # requests a second


def redis(folder: Path, share: int) -> list[Row]:
    """F3: Redis stands still, then is killed, for ten seconds each."""
    seconds = max(3, 10 // share)
    (key,) = server_process.make_accounts(server_process.sqlite(folder), 1)
    with (
        RedisServer(folder) as store,
        server_process.serving(folder, {"CONVERTD_REDIS_URL": store.url}) as (_, at),
    ):
        # A server's first requests take longer, and are nothing to compare with.
        first = asyncio.run(_steady(folder, at, key, _REDIS_RATE, 1))
        calm = asyncio.run(_steady(folder, at, key, _REDIS_RATE, seconds))
        stalled = asyncio.run(_steady(folder, at, key, _REDIS_RATE, seconds, store.stall, store.resume))
        killed = asyncio.run(_steady(folder, at, key, _REDIS_RATE, seconds, store.kill, store.start))
        left = leftovers(folder)
    rows: list[Row] = []
    for name, answers in (("stalled", stalled), ("killed", killed)):
        added = p99([answer.seconds for answer in answers]) - p99([answer.seconds for answer in calm])
        rows.append(exactly(f"{name}: answers but 200", sum(answer.status != 200 for answer in answers), 0))
        rows.append(at_most(f"{name}: added at p99, s", added, 0.15))
    return [*rows, *books(server_process.sqlite(folder), len(first) + len(calm) + len(stalled) + len(killed)), *left]


async def _steady(
    folder: Path,
    url: str,
    key: str,
    rate: int,
    seconds: float,
    fail: Callable[[], None] = lambda: None,
    mend: Callable[[], None] = lambda: None,
) -> list[Heard]:
    """So many requests a second while something fails, and as long again when it is mended."""
    file = folder / "picture.png"
    file.write_bytes(server_process.picture(_SMALL))
    await asyncio.to_thread(fail)
    asking = asyncio.create_task(carry_out(Plan(url, (key,) * _ADDRESSES, str(file), 2 * seconds, rate)))
    await asyncio.sleep(seconds)
    await asyncio.to_thread(mend)
    return await asking


def full_disk(folder: Path, share: int) -> list[Row]:
    """F4: the data folder is a small file system that is full, and then is not."""
    if os.geteuid() != 0:
        return [("skipped: only root mounts file systems", "", "", "")]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        return _filled(folder, max(10, 50 // share))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _filled(folder: Path, count: int) -> list[Row]:
    url = server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    with server_process.serving(folder) as (server, at):
        filler = folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        full = asyncio.run(_one_by_one(at, key, count))
        filler.unlink()
        after = asyncio.run(_until_served(at, key))
        lives = server.poll() is None
        left = leftovers(folder)
    return [
        exactly("answers but 500, 503", sum(answer.status not in (500, 503) for answer in full), 0),
        exactly("server lives", lives, True),
        at_most("seconds until it serves again", after, 5),
        *books(url, 1),
        *left,
    ]


def locked(folder: Path, share: int) -> list[Row]:
    """F5: another process locks the database for 3 seconds, then for 15."""
    url = server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    with server_process.serving(folder) as (server, at):
        threads = _threads(server.pid)
        short = asyncio.run(_while_locked(folder, at, key, 3))
        long = asyncio.run(_while_locked(folder, at, key, 15))
        grown = _threads(server.pid) - threads
        left = leftovers(folder)
    answers = [*short, *long]
    good = sum(answer.status == 200 for answer in answers)
    strange = [str(answer.status) for answer in long if answer.status not in (200, 503)]
    refused = sum(answer.status == 503 for answer in long)
    return [
        ("15 s: answers 503", float(refused), "> 0", holds(refused > 0)),
        exactly("3 s: answers but 200", sum(answer.status != 200 for answer in short), 0),
        exactly(f"15 s: answers but 200, 503 {' '.join(sorted(set(strange)))}".strip(), len(strange), 0),
        at_most("threads more", grown, 32),
        *books(url, good),
        *left,
    ]


def postgresql(folder: Path, share: int) -> list[Row]:
    """F6: PostgreSQL is restarted every two seconds."""
    count = 200 // share
    if (binaries := find_binaries()) is None:
        return [("skipped: PostgreSQL is not installed", "", "", "")]
    with PostgresServer(binaries) as store:
        (key,) = server_process.make_accounts(store.url, 1)
        with server_process.serving(folder, {"CONVERTD_DATABASE_URL": store.url}) as (_, at):
            clients = Clients(at, key, server_process.picture((2000, 1500)))

            async def disturbed() -> int:
                return await beside(asyncio.create_task(clients.order(count)), store.restart, 2)

            restarts = asyncio.run(disturbed())
            left = leftovers(folder)
            rows = books(store.url, count, _LEASE)
    return [
        ("restarts", float(restarts), "> 0", holds(restarts > 0)),
        exactly("orders served", len(clients.tries), count),
        *rows,
        *left,
    ]


async def _while_locked(folder: Path, url: str, key: str, seconds: float) -> list[Heard]:
    other = sqlite3.connect(folder / "convertd.db", isolation_level=None, check_same_thread=False)

    def unlock() -> None:
        other.execute("ROLLBACK")
        other.close()

    other.execute("BEGIN EXCLUSIVE")
    return await _steady(folder, url, key, _LOCK_RATE, seconds, mend=unlock)


async def _one_by_one(url: str, key: str, count: int) -> list[server_process.Answer]:
    async with httpx.AsyncClient(timeout=60) as client:
        return [await server_process.ask(client, url, key, server_process.picture(_SMALL)) for _ in range(count)]


async def _until_served(url: str, key: str) -> float:
    """Seconds until an order is served."""
    began = perf_counter()
    for _ in range(300):
        (answer,) = await _one_by_one(url, key, 1)
        if answer.status == 200:
            break
        await asyncio.sleep(0.2)
    return perf_counter() - began


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
