"""Processes killed at any time: an operation is charged if and only if it finished."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import peewee
import pytest

from storage.database import Database, Transaction
from storage.tables import accounts, ledger, ledger_audit, models
from storage.tables.ledger import ServerInstance
from tests.support.samples.storage import open_account
from tests.support.servers import storage_processes

pytestmark = pytest.mark.both_databases

SECONDS = 1
WORKERS = 3
THREADS = 4  # of each worker, whose transactions are committed together
KILLS = 3
OPERATIONS = 20  # at least


def test_killed_processes_charge_only_finished_operations(database: Database, url: str, tmp_path: Path) -> None:
    account = open_account(database, 100_000).id
    answers = [[tmp_path / f"worker-{number}-{thread}" for thread in range(THREADS)] for number in range(WORKERS)]
    workers = [_start(url, account, files) for files in answers]
    end = time.monotonic() + SECONDS
    kills = 0
    while time.monotonic() < end or kills < KILLS or len(_answered(answers)) < OPERATIONS:
        time.sleep(0.35)
        assert all(worker.poll() is None for worker in workers)
        unlucky = random.randrange(WORKERS)
        if _started(answers[unlucky]):
            workers[unlucky].kill()
            assert storage_processes.end(workers[unlucky]) == -9
            workers[unlucky] = _start(url, account, answers[unlucky])
            kills += 1
    for worker in workers:
        worker.kill()
        storage_processes.end(worker)
    database.run_blocking(_wait_for_writers)

    assert database.run_blocking(ledger_audit.check) == ()
    database.run_blocking(ledger.recover, ServerInstance("main", "after the kills"))
    assert database.run_blocking(ledger_audit.check) == ()
    answered = _answered(answers)
    rows = database.run_blocking(lambda transaction: transaction.all(models.Idempotency.select()))
    done = {row.key for row in rows if row.state == "done"}
    found = database.run_blocking(accounts.get, account)
    assert answered <= done
    assert len(done) <= len(answered) + (kills + WORKERS) * THREADS
    assert (found.held, found.used, found.balance) == (0, len(done), 100_000 - len(done))


def _start(url: str, account: str, files: Sequence[Path]) -> subprocess.Popen[str]:
    return storage_processes.start("work", url, account, *map(str, files))


def _wait_for_writers(transaction: Transaction) -> None:
    """Waits until PostgreSQL has ended the transactions of the killed processes."""
    if isinstance(transaction.connection, peewee.PostgresqlDatabase):
        transaction.connection.execute_sql("LOCK TABLE account IN EXCLUSIVE MODE")


def _answered(answers: Sequence[Sequence[Path]]) -> set[str]:
    """The keys of completed operations."""
    return {line for files in answers for file in files if file.exists() for line in file.read_text().splitlines()}


def _started(files: Sequence[Path]) -> bool:
    return all(file.exists() for file in files)
