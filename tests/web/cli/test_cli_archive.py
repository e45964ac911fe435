"""The `convertd archive` command."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import accounts, ledger, ledger_audit, models
from tests.support.command_line import invoke
from tests.support.samples.storage import OWNER, USE, Clock, open_account

pytestmark = pytest.mark.both_databases

JULY = int(datetime(2025, 7, 1, tzinfo=UTC).timestamp())
REFUSE_DELETES = {
    "sqlite": ("CREATE TRIGGER refuse BEFORE DELETE ON usage BEGIN SELECT RAISE(ABORT, 'refused'); END",),
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
        "CREATE TRIGGER refuse BEFORE DELETE ON usage FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
}


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
            database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER, 60), USE)
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


def test_an_interrupted_archive_continues(tmp_path: Path, url: str, used: dict[str, int]) -> None:
    (tmp_path / "moved.jsonl.gz.unfinished").write_bytes(b"interrupted while it was written")
    assert archive(tmp_path, url, "2025-06").exit_code == 0
    assert left(url) == (used, 9, 9)
    (tmp_path / "later.jsonl.gz").write_bytes(b"")
    assert archive(tmp_path, url, name="later.jsonl.gz").exit_code == 1  # is not overwritten
    (tmp_path / "later.jsonl.gz").unlink()
    assert archive(tmp_path, url, name="later.jsonl.gz").exit_code == 0
    assert left(url) == (used, 3, 3)


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


@pytest.mark.parametrize(("month", "status", "message"), [("2025-13", 2, "not a month"), ("2199-01", 1, "a day")])
def test_months_that_cannot_be_moved(tmp_path: Path, url: str, month: str, status: int, message: str) -> None:
    done = archive(tmp_path, url, month)
    assert done.exit_code == status
    assert message in done.stderr
    assert list(tmp_path.glob("moved*")) == []
