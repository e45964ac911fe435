"""One server with one process and with several, on SQLite and on PostgreSQL, with Redis as several need it."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import server
from benchmarks.measure import Variant, interleaved, table, throughput_ratio
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.redis_server import RedisServer
from benchmarks.report import COLUMNS, Report, Row, at_least, equals
from benchmarks.server import Runs
from benchmarks.workloads import TINY

_CONNECTIONS = 32
_ACCOUNTS = 16
_DURABLE = ("fsync=on", "full_page_writes=on")
_MIN_THROUGHPUT = 1.25  # multiple of the throughput of one process


def measure(rounds: int, seconds: float, processes: int) -> list[Report]:
    """Returns the throughput of each server, and the requirements. Raises RuntimeError without PostgreSQL."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("PostgreSQL is not installed here")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o711)
        TINY.write(folder)
        redis = stack.enter_context(RedisServer(folder))
        variants: dict[str, Variant] = {}
        for count in (1, processes):
            postgres = stack.enter_context(PostgresServer(binaries, _DURABLE))
            databases: Mapping[str, Mapping[str, str]] = {
                "SQLite": {},
                "PostgreSQL": {"CONVERTD_DATABASE_URL": postgres.url},
            }
            for name, settings in databases.items():
                settings = {"CONVERTD_REDIS_URL": redis.url, **settings}
                running = stack.enter_context(server.running(folder, settings, count))
                variants[_title(name, count)] = running.variant(TINY, folder, seconds, _CONNECTIONS, _ACCOUNTS)
        runs = asyncio.run(interleaved(variants, rounds))
    return [
        table(f"{TINY.title}, {_CONNECTIONS} connections ({rounds} x {seconds:g} s)", runs),
        Report("Requirements", COLUMNS, tuple(_requirements(runs, processes))),
    ]


def _title(database: str, processes: int) -> str:
    return f"{database}, {processes} process{'es' * (processes > 1)}"


def _requirements(runs: Runs, processes: int) -> list[Row]:
    share = throughput_ratio(runs[_title("PostgreSQL", processes)], runs[_title("PostgreSQL", 1)])
    failed = sum(run.failures for own in runs.values() for run in own)
    return [
        at_least(f"PostgreSQL: throughput, {processes} processes / 1", share, _MIN_THROUGHPUT),
        equals("failed requests", failed, 0),
    ]
