"""Jobs: how many are accepted, claimed and finished per second, and the latency of requests beside a full queue.

And how many messages about them are delivered per second. Run as a program, this module is their receiver, which
accepts each at once, so that the server is the limit.
"""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import psycopg
from peewee import fn

from benchmarks import server
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.measure import cpu_seconds
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import ServerProcess
from benchmarks.report import COLUMNS, Report, Row, at_least, at_most, equals, p99
from benchmarks.server import Server
from benchmarks.workloads import image
from storage.database import Database, Transaction
from storage.tables import deliveries, jobs, models, webhooks
from storage.tables.webhook_models import Delivery

TRIVIAL = image("64x48 PNG to BMP", "trivial.png", (64, 48), "PNG", {"output_format": "bmp"})

FULL_QUEUE = 2_000
"""Jobs that wait when the latency of further ones is measured."""

WEBHOOKS, MESSAGES = 8, 2_000
"""Accounts with a webhook, and the messages for all of them together."""

_ACCOUNTS = 3
_CONNECTIONS = 16
_DURABLE = ("fsync=on", "full_page_writes=on")
_STATEMENTS = "SELECT SUM(calls) FROM pg_stat_statements WHERE query NOT ILIKE '%pg_stat%'"
_RATE = 20.0  # jobs per second
_POLL_INTERVAL = 0.05  # seconds
_SUCCESSES = (HTTPStatus.ACCEPTED, HTTPStatus.OK)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ACCEPTED = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
_JOB = {"job_id": "job_0", "status": "completed", "result": {"filename": "photo.webp", "processed_size": 20_104}}


@dataclass(frozen=True)
class _Result:
    """The rates are per second, latencies of 202 in seconds, CPU time in seconds and statements per job.

    `alone` and `beside_jobs` are latencies of conversions that answer with their result, without waiting jobs and
    beside a full queue. `messages` are delivered to webhooks.
    """

    accepted: float
    finished: float
    cpu: float
    database_cpu: float
    statements: float
    latencies: tuple[float, ...]
    beside: tuple[float, ...]
    alone: tuple[float, ...]
    beside_jobs: tuple[float, ...]
    refused: int
    messages: float

    @property
    def slowdown(self) -> float:
        """The median latency of conversions beside a full queue, divided by that without jobs."""
        return median(self.beside_jobs) / median(self.alone)


def measure(seconds: float) -> list[Report]:
    """Returns the results with both databases, and the requirements. Raises RuntimeError without PostgreSQL."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("PostgreSQL is not installed here")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o711)
        TRIVIAL.write(folder)
        counted = "shared_preload_libraries=pg_stat_statements"
        postgres = stack.enter_context(PostgresServer(binaries, (*_DURABLE, counted)))
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
        results = {"SQLite": _measure(folder, seconds, None), "PostgreSQL": _measure(folder, seconds, postgres)}
    figures = {name: _figures(result) for name, result in results.items()}
    columns = ("database", *next(iter(figures.values())))
    rows: list[Row] = [(name, *own.values()) for name, own in figures.items()]
    title = f"{TRIVIAL.title}, {_ACCOUNTS} accounts, {_CONNECTIONS} connections for {seconds:g} s"
    return [Report(title, columns, tuple(rows)), Report("Requirements", COLUMNS, tuple(_requirements(results)))]


def _measure(folder: Path, seconds: float, postgres: PostgresServer | None) -> _Result:
    settings = {"CONVERTD_URL_ALLOW": "127.0.0.0/8"}
    if postgres is not None:
        settings["CONVERTD_DATABASE_URL"] = postgres.url
    with server.running(folder, settings) as running:
        plan = replace(
            running.plan(TRIVIAL, folder, seconds, _CONNECTIONS, _ACCOUNTS), headers=("Prefer: respond-async",)
        )
        database = Database(settings.get("CONVERTD_DATABASE_URL", f"sqlite:///{running.data / 'convertd.db'}"))
        try:
            return _run(plan, running, database, postgres)
        finally:
            database.close()


def _run(plan: LoadPlan, running: Server, database: Database, postgres: PostgresServer | None) -> _Result:
    with _Receiver() as receiver:
        messages = _messages_per_second(database, receiver)
    _submit(replace(plan, seconds=1))
    _wait_until_empty(database)
    before = _used(running, postgres)
    responses = _submit(plan)
    ended = _wait_until_empty(database)
    accepted = [one for one in responses if one.status == HTTPStatus.ACCEPTED]
    used = [now - then for now, then in zip(_used(running, postgres), before, strict=True)]
    cpu, database_cpu, statements = (amount / len(accepted) for amount in used)
    begun = min(one.sent_at for one in responses)
    last = max(one.received_at for one in responses)
    _fill_queue(database, plan)
    beside = _submit(replace(plan, concurrency=0, rate=_RATE))
    _wait_until_empty(database)
    conversions = replace(plan, keys=running.keys[_ACCOUNTS : _ACCOUNTS + 1], headers=(), concurrency=0, rate=_RATE / 2)
    alone = _submit(conversions)
    _fill_queue(database, plan)
    beside_jobs = _submit(conversions)
    return _Result(
        accepted=len(accepted) / (last - begun),
        finished=len(accepted) / (ended - begun),
        cpu=cpu,
        database_cpu=database_cpu,
        statements=statements,
        latencies=_latencies(responses, HTTPStatus.ACCEPTED),
        beside=_latencies(beside, HTTPStatus.ACCEPTED),
        alone=_latencies(alone, HTTPStatus.OK),
        beside_jobs=_latencies(beside_jobs, HTTPStatus.OK),
        refused=sum(one.status not in _SUCCESSES for one in (*responses, *beside, *alone, *beside_jobs)),
        messages=messages,
    )


def _latencies(responses: Sequence[TimedResponse], status: HTTPStatus) -> tuple[float, ...]:
    return tuple(one.seconds for one in responses if one.status == status)


def _fill_queue(database: Database, plan: LoadPlan) -> None:
    """Submits jobs until FULL_QUEUE wait."""
    while database.run_blocking(jobs.read_state).waiting < FULL_QUEUE:
        _submit(replace(plan, seconds=1))


def _submit(plan: LoadPlan) -> list[TimedResponse]:
    return asyncio.run(generate_load(plan))


def _wait_until_empty(database: Database) -> float:
    """Returns when all jobs had ended, in seconds of the monotonic clock."""
    while (state := database.run_blocking(jobs.read_state)).waiting or state.running:
        sleep(_POLL_INTERVAL)
    return monotonic()


def _used(running: Server, postgres: PostgresServer | None) -> tuple[float, float, float]:
    """CPU seconds of the server and of PostgreSQL, and the number of its statements."""
    own = cpu_seconds(running.pid)
    if postgres is None:
        return own, 0.0, 0.0
    with psycopg.connect(postgres.url) as connection:
        row = connection.execute(_STATEMENTS).fetchone()
    return own, cpu_seconds(postgres.pid), float(row[0] or 0) if row else 0.0


def _figures(result: _Result) -> dict[str, float]:
    """The cells of a row by column."""
    return {
        "accepted per second": result.accepted,
        "finished per second": result.finished,
        "CPU ms": 1000 * result.cpu,
        "of the database": 1000 * result.database_cpu,
        "statements": result.statements,
        "p50 ms": 1000 * median(result.latencies),
        "p99 ms": 1000 * p99(result.latencies),
        "p99 ms beside a full queue": 1000 * p99(result.beside),
        "conversion p50 ms": 1000 * median(result.alone),
        "beside jobs": 1000 * median(result.beside_jobs),
        "refused": result.refused,
        "messages per second": result.messages,
    }


def _requirements(results: Mapping[str, _Result]) -> list[Row]:
    rows: list[Row] = []
    for name, result in results.items():
        rows += [
            at_least(f"{name}: accepted, claimed and finished per second", result.finished, 300),
            at_most(f"{name}: p99 of requests beside a full queue, ms", 1000 * p99(result.beside), 50),
            at_most(f"{name}: p50 of conversions beside jobs / alone", result.slowdown, 2),
            equals(f"{name}: refused requests", result.refused, 0),
        ]
    return rows


class _Receiver(ServerProcess):
    """The receiver of messages, as a process of its own."""

    @property
    def command(self) -> Sequence[str]:
        return sys.executable, "-m", "benchmarks.jobs", str(self.port)


def _messages_per_second(database: Database, receiver: _Receiver) -> float:
    """Adds messages to the database of a running server, and waits until they are delivered."""
    accounts = database.run_blocking(_add_webhooks, f"http://127.0.0.1:{receiver.port}/")
    database.run_blocking(_add_messages, accounts)
    while (waiting := database.run_blocking(_count_waiting)) == MESSAGES:
        sleep(_POLL_INTERVAL)
    begun = monotonic()
    while database.run_blocking(_count_waiting):
        sleep(_POLL_INTERVAL)
    ended = monotonic()
    for account in accounts:
        database.run_blocking(webhooks.delete_all, account)
    return waiting / (ended - begun)


def _add_webhooks(transaction: Transaction, url: str) -> list[str]:
    """Adds a webhook to some accounts. Returns their ids."""
    accounts = [row.id for row in transaction.all(models.Account.select().limit(WEBHOOKS))]
    for account in accounts:
        webhooks.add(transaction, account, url, webhooks.EVENTS)
    return accounts


def _add_messages(transaction: Transaction, accounts: Sequence[str]) -> None:
    for number in range(MESSAGES):
        deliveries.add(transaction, accounts[number % len(accounts)], "job.completed", lambda: _JOB)


def _count_waiting(transaction: Transaction) -> int:
    waiting = Delivery.select(fn.COUNT(Delivery.delivery_id)).where(Delivery.next_attempt_at.is_null(False))
    return int(transaction.rows(waiting)[0][0])


async def _accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads a message and accepts it."""
    found = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
    await reader.readexactly(int(found[1]) if found else 0)
    writer.write(_ACCEPTED)
    await writer.drain()
    writer.close()


async def _serve(port: int) -> None:
    server = await asyncio.start_server(_accept, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
