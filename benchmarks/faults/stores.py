"""Unavailable stores: Redis, the disk, SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, check_ledger, check_work_files, repeat_during
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.report import Row, at_most, equals, info, p99, required
from tests.support.servers.postgres import PostgresServer, find_binaries
from tests.support.servers.redis_server import RedisServer

_SMALL, _MEDIUM = (64, 48), (2000, 1500)
_HOLD_TIMEOUT = 240  # seconds until credits are released that could not be released at once
_ADDRESSES = 8  # a server accepts 64 connections per address
_REDIS_RATE, _LOCK_RATE = 50, 20  # requests per second


def redis(folder: Path, divisor: int) -> list[Row]:
    """F3: Redis hangs, then is killed, for ten seconds each."""
    seconds = max(3, 10 // divisor)
    database_url = server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    with (
        RedisServer(folder) as store,
        server_process.serving(folder, {"CONVERTD_REDIS_URL": store.url}) as (server, url),
    ):

        def load(
            seconds: float, fail: Callable[[], None] = lambda: None, repair: Callable[[], None] = lambda: None
        ) -> list[TimedResponse]:
            return asyncio.run(_load_during_failure(folder, url, key, _REDIS_RATE, seconds, fail, repair))

        warm_up = load(1)  # the first requests of a server take longer
        baseline = load(seconds)
        stalled = load(seconds, store.stall, store.resume)
        killed = load(seconds, store.kill, store.start)
        file_rows = check_work_files(server.pid, folder)
    rows: list[Row] = []
    for name, responses in (("hanging", stalled), ("killed", killed)):
        added = p99([response.seconds for response in responses]) - p99([response.seconds for response in baseline])
        failures = sum(response.status != 200 for response in responses)
        rows.append(equals(f"{name}: responses other than 200", failures, 0))
        rows.append(at_most(f"{name}: added p99 latency, s", added, 0.15))
    count = len(warm_up) + len(baseline) + len(stalled) + len(killed)
    return [*rows, *check_ledger(database_url, count), *file_rows]


async def _load_during_failure(
    folder: Path,
    url: str,
    key: str,
    rate: int,
    seconds: float,
    fail: Callable[[], None] = lambda: None,
    repair: Callable[[], None] = lambda: None,
) -> list[TimedResponse]:
    """Sends requests at a fixed rate for `seconds` after `fail`, and for as long after `repair`."""
    file = folder / "picture.png"
    file.write_bytes(server_process.picture(_SMALL))
    await asyncio.to_thread(fail)
    load = asyncio.create_task(generate_load(LoadPlan(url, (key,) * _ADDRESSES, str(file), 2 * seconds, rate)))
    await asyncio.sleep(seconds)
    await asyncio.to_thread(repair)
    return await load


def full_disk(folder: Path, divisor: int) -> list[Row]:
    """F4: the disk of the data folder is full, then has space again."""
    if os.geteuid() != 0:
        return [info("skipped: mounting a file system needs root")]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        return _fill_disk(folder, max(10, 50 // divisor))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill_disk(folder: Path, count: int) -> list[Row]:
    database_url = server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    with server_process.serving(folder) as (server, url):
        filler = folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        responses = asyncio.run(_convert_in_sequence(url, key, count))
        filler.unlink()
        recovery = asyncio.run(_seconds_until_success(url, key))
        running = server.poll() is None
        file_rows = check_work_files(server.pid, folder)
    failures = sum(response.status not in (500, 503) for response in responses)
    return [
        equals("responses other than 500, 503", failures, 0),
        equals("server still running", running, True),
        at_most("seconds until the next success", recovery, 5),
        *check_ledger(database_url, 1),
        *file_rows,
    ]


def locked_database(folder: Path, divisor: int) -> list[Row]:
    """F5: another process locks the SQLite database for 3 seconds, then for 15."""
    database_url = server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    with server_process.serving(folder) as (server, url):
        threads = _threads(server.pid)
        short = asyncio.run(_load_during_lock(folder, url, key, 3))
        long = asyncio.run(_load_during_lock(folder, url, key, 15))
        added_threads = _threads(server.pid) - threads
        file_rows = check_work_files(server.pid, folder)
    successes = sum(response.status == 200 for response in (*short, *long))
    unexpected = [str(response.status) for response in long if response.status not in (200, 503)]
    refusals = sum(response.status == 503 for response in long)
    statuses = " ".join(sorted(set(unexpected)))
    return [
        required("15 s: responses 503", refusals, "> 0", met=refusals > 0),
        equals("3 s: responses other than 200", sum(response.status != 200 for response in short), 0),
        equals(f"15 s: responses other than 200, 503 {statuses}".strip(), len(unexpected), 0),
        at_most("additional threads", added_threads, 32),
        *check_ledger(database_url, successes),
        *file_rows,
    ]


async def _load_during_lock(folder: Path, url: str, key: str, seconds: float) -> list[TimedResponse]:
    connection = sqlite3.connect(folder / "convertd.db", isolation_level=None, check_same_thread=False)

    def unlock() -> None:
        connection.execute("ROLLBACK")
        connection.close()

    connection.execute("BEGIN EXCLUSIVE")
    return await _load_during_failure(folder, url, key, _LOCK_RATE, seconds, repair=unlock)


def postgresql(folder: Path, divisor: int) -> list[Row]:
    """F6: PostgreSQL is restarted every two seconds."""
    count, interval = 200 // divisor, max(0.5, 2 / divisor)  # at least one restart, however short the run
    if (binaries := find_binaries()) is None:
        return [info("skipped: PostgreSQL is not installed")]
    with PostgresServer(binaries) as store:
        (key,) = server_process.create_accounts(store.url, 1)
        with server_process.serving(folder, {"CONVERTD_DATABASE_URL": store.url}) as (server, url):
            clients = Clients(url, key, server_process.picture(_MEDIUM))

            async def convert_during_restarts() -> int:
                return await repeat_during(asyncio.create_task(clients.convert(count)), store.restart, interval)

            restarts = asyncio.run(convert_during_restarts())
            file_rows = check_work_files(server.pid, folder)
            ledger_rows = check_ledger(store.url, count, _HOLD_TIMEOUT)
    return [
        required("restarts", restarts, "> 0", met=restarts > 0),
        equals("conversions", clients.succeeded, count),
        *ledger_rows,
        *file_rows,
    ]


async def _convert_in_sequence(url: str, key: str, count: int) -> list[TimedResponse]:
    async with httpx.AsyncClient(timeout=60) as client:
        return [await server_process.convert(client, url, key, server_process.picture(_SMALL)) for _ in range(count)]


async def _seconds_until_success(url: str, key: str) -> float:
    started = monotonic()
    for _ in range(300):
        (response,) = await _convert_in_sequence(url, key, 1)
        if response.status == 200:
            break
        await asyncio.sleep(0.2)
    return monotonic() - started


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
