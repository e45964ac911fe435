"""Jobs: how many are accepted, claimed and finished per second, and the latency of requests beside a full queue.

And how many messages about them are delivered per second.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import psycopg

from benchmarks import server, webhooks
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.measure import cpu_seconds
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.report import COLUMNS, Report, Row, at_least, at_most, equals, p99
from benchmarks.server import Server
from benchmarks.workloads import image
from storage.database import Database
from storage.tables import jobs

TRIVIAL = image("64x48 PNG to BMP", "trivial.png", (64, 48), "PNG", {"output_format": "bmp"})

FULL_QUEUE = 2_000
"""Jobs that wait when the latency of further ones is measured."""

_ACCOUNTS = 3
_CONNECTIONS = 16
_DURABLE = ("fsync=on", "full_page_writes=on")
_STATEMENTS = "SELECT SUM(calls) FROM pg_stat_statements WHERE query NOT ILIKE '%pg_stat%'"
_RATE = 20.0  # jobs per second
_POLL_INTERVAL = 0.1  # seconds
_SUCCESSES = (HTTPStatus.ACCEPTED, HTTPStatus.OK)
_COLUMNS = (
    *("database", "accepted per second", "finished per second", "CPU ms", "of the database", "statements"),
    *("p50 ms", "p99 ms", "p99 ms beside a full queue", "conversion p50 ms", "beside jobs", "refused"),
    "messages per second",
)


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
        results = {
            "SQLite": _measure(folder, seconds, None),
            "PostgreSQL": _measure(folder, seconds, postgres),
        }
    rows: list[Row] = [(name, *_figures(result)) for name, result in results.items()]
    title = f"{TRIVIAL.title}, {_ACCOUNTS} accounts, {_CONNECTIONS} connections for {seconds:g} s"
    return [Report(title, _COLUMNS, tuple(rows)), Report("Requirements", COLUMNS, tuple(_requirements(results)))]


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
    with webhooks.Receiver() as receiver:
        messages = webhooks.messages_per_second(database, receiver)
    _submit(replace(plan, seconds=1))
    _wait_until_empty(database)
    before = _used(running, postgres)
    responses = _submit(plan)
    ended = _wait_until_empty(database)
    accepted = [one for one in responses if one.status == HTTPStatus.ACCEPTED]
    used = [now - then for now, then in zip(_used(running, postgres), before, strict=True)]
    cpu, database_cpu, statements = (amount / len(accepted) for amount in used)
    begun, last = min(one.sent_at for one in responses), max(one.received_at for one in responses)
    _fill_queue(database, plan)
    beside = _submit(replace(plan, concurrency=0, rate=_RATE))
    _wait_until_empty(database)
    conversions = replace(plan, keys=running.keys[_ACCOUNTS : _ACCOUNTS + 1], headers=(), concurrency=0, rate=_RATE / 2)
    alone = _submit(conversions)
    _fill_queue(database, plan)
    beside_jobs = _submit(conversions)
    return _Result(
        len(accepted) / (last - begun),
        len(accepted) / (ended - begun),
        cpu,
        database_cpu,
        statements,
        tuple(one.seconds for one in accepted),
        tuple(one.seconds for one in beside if one.status == HTTPStatus.ACCEPTED),
        tuple(one.seconds for one in alone if one.status == HTTPStatus.OK),
        tuple(one.seconds for one in beside_jobs if one.status == HTTPStatus.OK),
        sum(one.status not in _SUCCESSES for one in (*responses, *beside, *alone, *beside_jobs)),
        messages,
    )


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


def _figures(result: _Result) -> Sequence[float]:
    ordered = sorted(result.latencies)
    return (
        *(result.accepted, result.finished, 1000 * result.cpu, 1000 * result.database_cpu, result.statements),
        *(1000 * ordered[len(ordered) // 2], 1000 * p99(ordered), 1000 * p99(result.beside)),
        *(1000 * median(result.alone), 1000 * median(result.beside_jobs), result.refused, result.messages),
    )


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
