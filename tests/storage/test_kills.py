"""Processes killed at any time: an operation is charged if and only if it finished."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from storage import accounts, ledger, ledger_audit, models
from storage.database import Database
from storage.ledger import ServerInstance
from tests.support import storage_processes
from tests.support.storage_samples import open_account

pytestmark = pytest.mark.both_databases

SECONDS = 1
WORKERS = 3
KILLS = 3


def test_killed_processes_charge_only_finished_operations(database: Database, url: str, tmp_path: Path) -> None:
    account = open_account(database, 100_000).id
    files = [tmp_path / f"worker-{number}" for number in range(WORKERS)]
    workers = [storage_processes.start("work", url, account, str(file)) for file in files]
    end = time.monotonic() + SECONDS
    kills = 0
    while time.monotonic() < end or kills < KILLS or not all(file.exists() for file in files):
        time.sleep(0.35)
        unlucky = random.randrange(WORKERS)
        if files[unlucky].exists():
            workers[unlucky].kill()
            assert storage_processes.end(workers[unlucky]) == -9
            workers[unlucky] = storage_processes.start("work", url, account, str(files[unlucky]))
            kills += 1
    for worker in workers:
        worker.kill()
        storage_processes.end(worker)

    assert database.run_blocking(ledger_audit.check) == ()
    database.run_blocking(ledger.recover, ServerInstance("main", "after the kills"))
    assert database.run_blocking(ledger_audit.check) == ()
    answered = {line for file in files for line in file.read_text().splitlines()}
    rows = database.run_blocking(lambda transaction: transaction.all(models.Idempotency.select()))
    done = {row.key for row in rows if row.state == "done"}
    found = database.run_blocking(accounts.get, account)
    assert answered <= done
    assert len(done) <= len(answered) + kills + WORKERS
    assert (found.held, found.used, found.balance) == (0, len(done), 100_000 - len(done))
    assert len(answered) > 20
