"""`convertd backup`, `restore` and `archive`, of a server that runs."""

import gzip
import json
import re
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import Result

from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import accounts, ledger, ledger_audit, models
from tests.support.command_line import invoke
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.samples.storage import OWNER, USE, Clock, open_account
from tests.support.servers.in_process import Servers
from tests.support.servers.stores import S3Server

Stores = Callable[[str], dict[str, Any]]
JULY = int(datetime(2025, 7, 1, tzinfo=UTC).timestamp())
REFUSE_DELETES = {
    "sqlite": ("CREATE TRIGGER refuse BEFORE DELETE ON usage BEGIN SELECT RAISE(ABORT, 'refused'); END",),
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
        "CREATE TRIGGER refuse BEFORE DELETE ON usage FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
}


@pytest.fixture(params=["alone", "shared"])
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Returns a function that makes new stores, and returns the settings that name them."""
    if request.param == "alone":
        return lambda _name: {}
    new_url, s3 = request.getfixturevalue("new_postgres_url"), request.getfixturevalue("s3_server")
    assert isinstance(s3, S3Server)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return lambda name: {"database_url": new_url(), "blob_url": s3.url(name)}


def _environment(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    variables = {f"CONVERTD_{name.upper()}": str(value) for name, value in settings.items()}
    return {**variables, "CONVERTD_DATA_DIR": str(folder), "CONVERTD_WORKERS": "3"}


def test_a_backup_is_restored(servers: Servers, tmp_path: Path, stores: Stores) -> None:
    before, after = stores("before"), stores("after")
    old, new = _environment(tmp_path / "old", before), _environment(tmp_path / "new", after)
    with servers.running(tmp_path / "old", **before) as server:
        key = server.account(10)
        file = server.upload(sample("png"), "photo.png", key=key)["file_id"]
        server.request("POST", f"/files/{file}/convert", key, json={"output_format": "webp"})
        content = server.request("GET", f"/files/{file}/download", key).content
        usage = server.request("GET", "/account/usage", key).json()["data"]

        done = invoke(tmp_path, "backup", "copy.tar", **old)
        assert (done.exit_code, done.stderr.startswith("convertd: copy.tar has the database and ")) == (0, True)
        again = invoke(tmp_path, "backup", "copy.tar", **old)
        assert (again.exit_code, again.stderr) == (1, "convertd: copy.tar exists.\n")
        later = server.account(10)
        assert server.convert(sample("png"), "gif", headers={"Authorization": f"Bearer {key}"}).status_code == 200

    used = invoke(tmp_path, "restore", "copy.tar", **old)
    assert (used.exit_code, used.stderr.count("\n")) == (1, 1)
    restored = invoke(tmp_path, "restore", "copy.tar", **new)
    assert (restored.exit_code, "stored files" in restored.stderr) == (0, True)
    twice = invoke(tmp_path, "restore", "copy.tar", **new)
    assert (twice.exit_code, twice.stderr.count("\n")) == (1, 1)
    assert invoke(tmp_path, "account", "audit", **new).exit_code == 0
    with servers.running(tmp_path / "new", **after) as server:
        assert server.request("GET", f"/files/{file}/download", key).content == content
        assert server.request("GET", "/account/usage", key).json()["data"]["by_day"] == usage["by_day"]
        problem(http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {later}"}), 401, "invalid_api_key")
        converted = server.convert(sample("png"), "gif", headers={"Authorization": f"Bearer {key}"})
        assert converted.headers["X-Credits-Remaining"] == "8"
    assert invoke(tmp_path, "account", "audit", **new).exit_code == 0


def test_a_backup_has_settings_without_secrets_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    secrets = {"CONVERTD_STRIPE_SECRET_KEY": "sk_live_sesame", "CONVERTD_STRIPE_WEBHOOK_SECRET": "whsec_sesame"}
    smtp = {"CONVERTD_SMTP_URL": "smtp://user:sesame@localhost", "CONVERTD_MAX_BATCH_FILES": "7"}

    assert (
        invoke(tmp_path, "backup", "copy.tar", **_environment(tmp_path / "data", {}), **secrets, **smtp).exit_code == 0
    )

    assert (tmp_path / "copy.tar").stat().st_mode & 0o777 == 0o600
    assert b"sesame" not in (tmp_path / "copy.tar").read_bytes()
    with tarfile.open(tmp_path / "copy.tar") as archive:
        notes = archive.extractfile("settings.toml")
        assert notes is not None
        text = notes.read().decode()
    assert "max_batch_files = 7" in text
    assert "# CONVERTD_SMTP_URL is a secret" in text
    assert {path.name for path in tmp_path.iterdir()} == {"copy.tar", "data"}


@pytest.mark.parametrize("content", [b"", b"no archive" * 1000])
def test_what_is_no_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "copy.tar").write_bytes(content)

    done = invoke(tmp_path, "restore", "copy.tar", **_environment(tmp_path / "data", {}))

    assert (done.exit_code, done.stderr) == (1, "convertd: copy.tar is not a backup.\n")
    assert not (tmp_path / "data" / "convertd.db").exists()


def test_a_backup_of_another_kind_of_database_is_refused(tmp_path: Path, new_postgres_url: Callable[[], str]) -> None:
    assert invoke(tmp_path, "backup", "copy.tar", **_environment(tmp_path / "data", {})).exit_code == 0

    done = invoke(
        tmp_path, "restore", "copy.tar", **_environment(tmp_path / "new", {"database_url": new_postgres_url()})
    )

    assert (done.exit_code, done.stderr) == (1, "convertd: The copy is not of PostgreSQL, as the database is.\n")


def test_an_uncopyable_database_is_reported_in_one_line(tmp_path: Path, new_postgres_url: Callable[[], str]) -> None:
    full, empty = ({"database_url": new_postgres_url(), "blob_url": f"file://{tmp_path / name}"} for name in "ab")
    assert invoke(tmp_path, "backup", "copy.tar", **_environment(tmp_path / "old", full)).exit_code == 0
    _spoil(tmp_path / "copy.tar", "database/backfill")
    with psycopg.connect(full["database_url"]) as connection:  # COPY refuses such a column
        connection.execute("ALTER TABLE purchase ADD COLUMN doubled BIGINT GENERATED ALWAYS AS (2 * credits) STORED")

    for command, settings in (("backup", full), ("restore", empty)):
        done = invoke(tmp_path, command, f"{command}.tar", **_environment(tmp_path / command, settings))
        assert done.exit_code == 1
        assert re.fullmatch(r"convertd: cannot use the database: .+; check CONVERTD_DATABASE_URL, .+\n", done.stderr)

    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".convertd", "backup"))]
    with psycopg.connect(empty["database_url"]) as connection:  # nothing is left of what was restored
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(0,)]


def _spoil(backup: Path, member: str) -> None:
    """Writes restore.tar, which is the backup with a row in the member that the table cannot hold."""
    with tarfile.open(backup) as archive, tarfile.open(backup.with_name("restore.tar"), "w") as spoilt:
        for found in archive.getmembers():
            if found.name == member:
                found.size = len(content := b"no\trow\tof\tthe\ttable\n")
                spoilt.addfile(found, BytesIO(content))
            else:
                spoilt.addfile(found, archive.extractfile(found))


@pytest.fixture
def used(url: str) -> dict[str, int]:
    """The balances of accounts that were charged four times: three times before July 2025."""
    clock = Clock()
    database = Database(url, clock=clock)
    for days in (-40, -2, -1, 1):
        clock.now = JULY + days * 86_400
        if days == -40:
            opened = [open_account(database).id for _ in range(3)]
        for account in opened:
            database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER), USE)
    database.close()
    return dict.fromkeys(opened, 46)


def execute(url: str, *statements: str) -> None:
    database = Database(url)
    for statement in statements:
        database.run_blocking(lambda transaction, sql: transaction.execute_statement(sql), Statement(statement))
    database.close()


def archive(folder: Path, url: str, month: str = "2025-07", name: str = "moved.jsonl.gz") -> Result:
    return invoke(folder, "archive", name, "--before", month, CONVERTD_DATABASE_URL=url)


def left(url: str) -> tuple[dict[str, int], int, int]:
    """The balances, and how many rows of usage and charges there are. Asserts that the ledger is consistent."""
    database = Database(url)
    assert database.run_blocking(ledger_audit.check) == ()
    charges = models.Entry.select().where(models.Entry.kind == "charge")
    queries: list[Any] = [models.Usage.select(), charges]
    counts = [len(database.run_blocking(Transaction.all, query)) for query in queries]
    balances = {account.id: account.credits_remaining for account in database.run_blocking(accounts.list_all)}
    database.close()
    return balances, counts[0], counts[1]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.mark.both_databases
def test_months_are_moved_into_a_file(tmp_path: Path, url: str, used: dict[str, int]) -> None:
    done = archive(tmp_path, url)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "18 rows" in done.stderr
    file = tmp_path / "moved.jsonl.gz"
    rows = read(file)
    assert [row["table"] for row in rows].count("usage") == 9
    assert {row["account"] for row in rows} == used.keys()
    assert sum(row["credits"] for row in rows if row["table"] == "usage") == 9
    assert sum(row["amount"] for row in rows if row["table"] == "entry") == -9
    assert file.stat().st_mode & 0o777 == 0o600
    assert left(url) == (used, 3, 3)
    assert archive(tmp_path, url).exit_code == 0  # has nothing left to do
    assert read(file) == rows


@pytest.mark.both_databases
def test_an_interrupted_archive_continues(tmp_path: Path, url: str, used: dict[str, int]) -> None:
    (tmp_path / "moved.jsonl.gz.unfinished").write_bytes(b"interrupted while it was written")
    assert archive(tmp_path, url, "2025-06").exit_code == 0
    assert left(url) == (used, 9, 9)
    (tmp_path / "later.jsonl.gz").write_bytes(b"")
    assert archive(tmp_path, url, name="later.jsonl.gz").exit_code == 1  # is not overwritten
    (tmp_path / "later.jsonl.gz").unlink()
    assert archive(tmp_path, url, name="later.jsonl.gz").exit_code == 0
    assert left(url) == (used, 3, 3)


@pytest.mark.both_databases
def test_a_removal_that_was_interrupted_continues(tmp_path: Path, url: str, used: dict[str, int]) -> None:
    execute(url, *REFUSE_DELETES[url.partition(":")[0]])
    assert archive(tmp_path, url).exit_code == 1
    assert left(url) == (used, 12, 12)
    assert archive(tmp_path, url, "2025-08", name="other.jsonl.gz").exit_code == 1
    assert archive(tmp_path, url, name="other.jsonl.gz").exit_code == 1
    assert left(url) == (used, 12, 12)
    execute(url, "DROP TRIGGER refuse" if url.startswith("sqlite") else "DROP TRIGGER refuse ON usage")
    (tmp_path / "other.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    assert archive(tmp_path, url, name="other.jsonl.gz").exit_code == 1
    assert left(url) == (used, 12, 12)
    assert archive(tmp_path, url).exit_code == 0
    assert left(url) == (used, 3, 3)


@pytest.mark.both_databases
@pytest.mark.parametrize(("month", "status", "message"), [("2025-13", 2, "not a month"), ("2199-01", 1, "a day")])
def test_months_that_cannot_be_moved(tmp_path: Path, url: str, month: str, status: int, message: str) -> None:
    done = archive(tmp_path, url, month)
    assert done.exit_code == status
    assert message in done.stderr
    assert list(tmp_path.glob("moved*")) == []
