"""Maintenance of a running server: backfills that a migration has left."""

import time
from pathlib import Path

from storage.database import Database, Transaction
from storage.tables import backfills, deliveries, ledger, ledger_audit, models, webhook_models, webhooks
from storage.tables.deliveries import RETENTION
from storage.tables.webhooks import EVENTS
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


def test_servers_delete_old_deliveries_and_secrets(servers: Servers, data_dir: Path) -> None:
    past = Database(f"sqlite:///{data_dir / 'convertd.db'}", clock=lambda: time.time() - RETENTION)
    account = open_account(past).id
    webhook = past.run_blocking(webhooks.add, account, "http://10.0.0.1/", EVENTS).webhook.webhook_id
    past.run_blocking(webhooks.replace_secret, webhook)
    past.run_blocking(deliveries.add, account, "job.completed", dict)
    past.run_blocking(webhooks.disable, webhook, "gone")
    with servers.running(data_dir):
        assert eventually(lambda: not past.run_blocking(Transaction.all, webhook_models.Delivery.select()))
        assert eventually(lambda: len(past.run_blocking(Transaction.all, webhook_models.SigningSecret.select())) == 1)
    past.close()
