"""Maintenance of a running server: backfills that a migration has left."""

from pathlib import Path

from storage.database import Database, Transaction
from storage.tables import backfills, ledger, ledger_audit, models
from tests.support.samples.storage import OWNER, USE, open_account
from tests.support.servers.in_process import Servers, eventually


def test_servers_run_backfills(servers: Servers, data_dir: Path) -> None:
    database = Database(f"sqlite:///{data_dir / 'convertd.db'}")
    account = open_account(database, 50).id
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER, 60), USE)
    database.run_blocking(Transaction.execute, models.UsageDay.delete())
    assert database.run_blocking(ledger_audit.check)
    for name in ("ended_holds", "usage_day"):
        database.run_blocking(Transaction.insert, models.Backfill.insert(name=name, position=""))
    with servers.running(data_dir):
        assert eventually(lambda: database.run_blocking(backfills.pending) == ())
        assert database.run_blocking(ledger_audit.check) == ()
    database.close()
