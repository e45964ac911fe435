"""What a conversion costs the database and the object store, which limits how many a day an installation can have."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import psycopg
import pytest

from benchmarks import server
from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.workloads import TINY
from storage.database import Database
from storage.tables import ledger_audit
from tests.support.servers.stores import S3Server

pytestmark = pytest.mark.long

_CONVERSIONS = 50  # of each kind
# As in production: full pages are written to the log after a checkpoint. Statements are counted.
_POSTGRES_SETTINGS = ("full_page_writes=on", "shared_preload_libraries=pg_stat_statements")
_READINGS = {
    "statements": "SELECT SUM(calls) FROM pg_stat_statements WHERE query NOT ILIKE '%pg_stat%'",
    "rows that stay": "SELECT (SELECT COUNT(*) FROM entry) + (SELECT COUNT(*) FROM usage)",
    "WAL bytes": "SELECT pg_current_wal_lsn() - '0/0'",
}
_SETTLING_TIME = 1.5  # seconds until the server has done what follows the last response
_FILLED = 20_000  # rows, whose size is measured
_FILL = {
    "entry": "SELECT 'hold_' || left(md5(n::text), 22), id, 'charge', -1, 1700000000 + n",
    "usage": "SELECT id, 'convert', 'jpeg', 'webp', 500000, 100000, TRUE, 1, 1700000000 + n",
}


@dataclass(frozen=True)
class Installation:
    """A server with a PostgreSQL and an S3 store of its own."""

    connection: psycopg.Connection[tuple[Any, ...]]
    database_url: str
    blobs: S3Server
    api: str
    key: str

    def number(self, query: str) -> float:
        """The only value that a query returns."""
        ((value,),) = self.connection.execute(query.encode()).fetchall()
        return float(value)

    def cost(self, send: Callable[[], object]) -> dict[str, float]:
        """What one call of `send` uses, by name."""
        send()  # connects, and starts a worker
        before = self._used()
        for _ in range(_CONVERSIONS):
            send()
        return {name: (used - before[name]) / _CONVERSIONS for name, used in self._used().items()}

    def _used(self) -> dict[str, float]:
        sleep(_SETTLING_TIME)
        requests = self.blobs.requests()
        values = {name: self.number(query) for name, query in _READINGS.items()}
        return values | {method: float(requests[method]) for method in ("PUT", "POST", "GET")}


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer(binaries, _POSTGRES_SETTINGS))
        blobs = stack.enter_context(S3Server())
        settings = {"CONVERTD_DATABASE_URL": postgres.url, "CONVERTD_BLOB_URL": blobs.url("growth")}
        running = stack.enter_context(server.running(tmp_path, {**settings, **blobs.environment}))
        connection = stack.enter_context(psycopg.connect(postgres.url, autocommit=True))
        connection.execute("CREATE EXTENSION pg_stat_statements")
        yield Installation(connection, postgres.url, blobs, running.process.api, running.keys[0])


def test_the_costs_of_conversions(installation: Installation, tmp_path: Path) -> None:
    """The bounds are half as much again as each kind costs: each statement more limits the ledger of all servers."""
    TINY.write(tmp_path)
    authorization = {"Authorization": f"Bearer {installation.key}"}
    with httpx.Client(base_url=installation.api, headers=authorization, timeout=60) as client:
        kinds = _kinds(client, (tmp_path / TINY.file).read_bytes())
        plain, keyed, stored = (installation.cost(send) for send in kinds)

    print(f"\nplain: {plain}\nwith a key: {keyed}\nstored: {stored}")
    assert 0 < plain["statements"] < keyed["statements"] < stored["statements"]
    assert plain["rows that stay"] == keyed["rows that stay"] == stored["rows that stay"] == 2
    assert 500 < plain["WAL bytes"] < stored["WAL bytes"]
    assert plain["statements"] < 9
    assert keyed["statements"] < 17
    assert stored["statements"] < 38
    assert plain["PUT"] == plain["POST"] == plain["GET"] == 0
    assert 0 < keyed["PUT"] < stored["PUT"]
    assert 1 <= stored["PUT"] + stored["POST"] + stored["GET"] <= 5
    assert stored["GET"] >= 1
    with closing(Database(installation.database_url)) as database:
        assert not database.run_blocking(ledger_audit.check)


@pytest.mark.parametrize("table", _FILL)
def test_the_size_of_rows_that_stay_until_they_are_archived(installation: Installation, table: str) -> None:
    accounts = f"(SELECT id FROM account LIMIT 1) AS account, generate_series(1, {_FILLED}) AS n"
    installation.connection.execute(f"CREATE TABLE measured (LIKE {table} INCLUDING ALL)".encode())
    installation.connection.execute(f"INSERT INTO measured {_FILL[table]} FROM {accounts}".encode())

    assert 50 < installation.number("SELECT pg_total_relation_size('measured')") / _FILLED < 300


def _kinds(client: httpx.Client, content: bytes) -> tuple[Callable[[], object], ...]:
    """Convert with the result in the response, with an idempotency key, and a stored file from upload to deletion."""
    files = {"file": (TINY.file, content)}

    def post(headers: Mapping[str, str]) -> None:
        client.post("/convert", headers=headers, data=TINY.fields, files=files).raise_for_status()

    def convert_stored() -> None:
        uploaded = client.post("/files/upload", files=files).raise_for_status()
        url, target = f"/files/{uploaded.json()['data']['file_id']}", TINY.fields["output_format"]
        client.post(f"{url}/convert", json={"output_format": target}).raise_for_status()
        client.get(f"{url}/download").raise_for_status()
        client.delete(url).raise_for_status()

    return lambda: post({}), lambda: post({"Idempotency-Key": secrets.token_hex(8)}), convert_stored
