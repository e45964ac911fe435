"""What a conversion costs PostgreSQL, the server and the object store, and what that makes at many a day."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import httpx
import psycopg

from benchmarks import server
from benchmarks.measure import cpu_seconds
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.report import COLUMNS, Report, Row, equals
from benchmarks.s3_server import S3Server
from benchmarks.server import Server
from benchmarks.workloads import TINY
from storage.database import Database
from storage.tables import ledger_audit

# As in production: full pages are written to the log after a checkpoint. Statements are counted.
_POSTGRES_SETTINGS = ("full_page_writes=on", "shared_preload_libraries=pg_stat_statements")
_READINGS = {
    "statements": "SELECT SUM(calls) FROM pg_stat_statements WHERE query NOT ILIKE '%pg_stat%'",
    "rows inserted": "SELECT SUM(n_tup_ins) FROM pg_stat_user_tables",
    "updated": "SELECT SUM(n_tup_upd) FROM pg_stat_user_tables",
    "deleted": "SELECT SUM(n_tup_del) FROM pg_stat_user_tables",
    "WAL bytes": "SELECT pg_current_wal_lsn() - '0/0'",
}
_STATISTICS_DELAY = 1.5  # seconds until PostgreSQL has written its statistics
_FILLED = 100_000  # rows, whose size is measured
_FILL = {
    "entry": "SELECT 'hold_' || left(md5(n::text), 22), id, 'charge', -1, 1700000000 + n",
    "usage": "SELECT id, 'convert', 'jpeg', 'webp', 500000, 100000, TRUE, 1, 1700000000 + n",
}
_VOLUMES = (10**6, 10**9)  # conversions a day
_DAY = 86_400  # seconds
_PEAK = 3  # times the mean rate of a day
_RETENTION = 90  # days until usage and charges are archived


@dataclass(frozen=True)
class _Meter:
    """Reads what the parts of an installation have used so far. CPU times are in milliseconds."""

    connection: psycopg.Connection[tuple[Any, ...]]
    postgres: PostgresServer
    blobs: S3Server
    server: Server

    def read(self) -> dict[str, float]:
        """Returns all figures by name."""
        sleep(_STATISTICS_DELAY)
        values = {name: _number(self.connection, query) for name, query in _READINGS.items()}
        values["PostgreSQL CPU ms"] = 1000 * cpu_seconds(self.postgres.pid)
        values["server CPU ms"] = 1000 * cpu_seconds(self.server.pid)
        requests = self.blobs.requests()
        return values | {f"S3 {method}": float(requests[method]) for method in ("PUT", "POST", "GET")}


def measure(conversions: int) -> list[Report]:
    """Returns the costs of each kind of conversion, the size of rows, the arithmetic of a day, and the requirement."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("PostgreSQL is not installed here")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        TINY.write(folder)
        postgres = stack.enter_context(PostgresServer(binaries, _POSTGRES_SETTINGS))
        blobs = stack.enter_context(S3Server())
        settings = {"CONVERTD_DATABASE_URL": postgres.url, "CONVERTD_BLOB_URL": blobs.url("growth")}
        convertd = stack.enter_context(server.running(folder, {**settings, **blobs.environment}))
        connection = stack.enter_context(psycopg.connect(postgres.url, autocommit=True))
        connection.execute("CREATE EXTENSION pg_stat_statements")
        meter = _Meter(connection, postgres, blobs, convertd)
        client = stack.enter_context(httpx.Client(timeout=60))
        kinds = _kinds(client, convertd, (folder / TINY.file).read_bytes())
        costs = {title: _cost(meter, conversions, send) for title, send in kinds.items()}
        violations = _violations(postgres.url)
        sizes = dict(_row_sizes(connection))
    plain = next(iter(costs.values()))
    return [
        Report(
            "Costs of a conversion",
            ("conversion", *plain),
            tuple((title, *cost.values()) for title, cost in costs.items()),
        ),
        Report(
            "Rows that stay until they are archived", ("table", "bytes of a row with its indexes"), tuple(sizes.items())
        ),
        Report("A day", ("figure", *(f"{volume:g} conversions" for volume in _VOLUMES)), tuple(_day(costs, sizes))),
        Report("Requirements", COLUMNS, (equals("violations of the ledger", violations, 0),)),
    ]


def _kinds(client: httpx.Client, convertd: Server, content: bytes) -> Mapping[str, Callable[[], object]]:
    """The kinds of conversions, each with a function that makes one."""
    api, authorization = convertd.process.api, {"Authorization": f"Bearer {convertd.keys[0]}"}
    files = {"file": (TINY.file, content)}

    def post(path: str, headers: Mapping[str, str] = authorization) -> httpx.Response:
        return client.post(f"{api}{path}", headers=headers, data=dict(TINY.fields), files=files).raise_for_status()

    def keyed() -> None:
        post("/convert", {**authorization, "Idempotency-Key": secrets.token_hex(8)})

    def stored() -> None:
        uploaded = client.post(f"{api}/files/upload", headers=authorization, files=files).raise_for_status()
        url, target = (
            f"{api}/files/{uploaded.json()['data']['file_id']}",
            {"output_format": TINY.options["output_format"]},
        )
        client.post(f"{url}/convert", headers=authorization, json=target).raise_for_status()
        client.get(f"{url}/download", headers=authorization).raise_for_status()
        client.delete(url, headers=authorization).raise_for_status()

    return {
        "result in the response": lambda: post("/convert"),
        "with an idempotency key": keyed,
        "upload, conversion, download and deletion of a stored file": stored,
    }


def _cost(meter: _Meter, conversions: int, send: Callable[[], object]) -> dict[str, float]:
    """Returns what a conversion uses, by name."""
    send()  # connects, and starts a worker
    before = meter.read()
    for _ in range(conversions):
        send()
    after = meter.read()
    return {name: (after[name] - before[name]) / conversions for name in before}


def _number(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> float:
    ((value,),) = connection.execute(query.encode()).fetchall()
    return float(value)


def _violations(url: str) -> int:
    database = Database(url)
    try:
        return len(database.read_blocking(ledger_audit.check))
    finally:
        database.close()


def _row_sizes(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[tuple[str, float]]:
    """The bytes of a row by the name of its table, measured with many rows in copies of the tables."""
    for table, select in _FILL.items():
        connection.execute(f"CREATE TABLE measured_{table} (LIKE {table} INCLUDING ALL)".encode())
        accounts = f"(SELECT id FROM account LIMIT 1) AS account, generate_series(1, {_FILLED}) AS n"
        connection.execute(f"INSERT INTO measured_{table} {select} FROM {accounts}".encode())
        yield table, _number(connection, f"SELECT pg_total_relation_size('measured_{table}')") / _FILLED


def _day(costs: Mapping[str, Mapping[str, float]], sizes: Mapping[str, float]) -> Iterator[Row]:
    """The figures of a day for each volume, with conversions of the first kind, and S3 requests of the last one."""
    plain, stored = next(iter(costs.values())), list(costs.values())[-1]
    row = sum(sizes.values())
    requests = sum(number for name, number in stored.items() if name.startswith("S3"))
    cores = {part: plain[f"{part} CPU ms"] / 1000 for part in ("PostgreSQL", "server")}
    figures: dict[str, Callable[[int], float]] = {
        "conversions per second, mean": lambda volume: volume / _DAY,
        f"conversions per second, peak of {_PEAK} times the mean": lambda volume: _PEAK * volume / _DAY,
        "statements per second at the peak": lambda volume: _PEAK * volume / _DAY * plain["statements"],
        "cores of PostgreSQL at the peak": lambda volume: _PEAK * volume / _DAY * cores["PostgreSQL"],
        "cores of servers and their workers at the peak, tiny pictures": lambda volume: (
            _PEAK * volume / _DAY * cores["server"]
        ),
        "S3 requests per second at the peak, if all files are stored": lambda volume: _PEAK * volume / _DAY * requests,
        "rows that stay": lambda volume: len(sizes) * volume,
        "GB that stay": lambda volume: volume * row / 1e9,
        f"GB after {_RETENTION} days": lambda volume: _RETENTION * volume * row / 1e9,
        "GB of WAL": lambda volume: volume * plain["WAL bytes"] / 1e9,
    }
    for name, figure in figures.items():
        yield name, *(figure(volume) for volume in _VOLUMES)
