"""What every server runs every 30 seconds or at each start reads rows by indexes, not whole tables."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction
from storage.tables import (
    archives,
    batches,
    deliveries,
    email_verification,
    files,
    idempotency,
    job_runs,
    jobs,
    ledger,
    purchases,
    receivers,
    sessions,
    totals,
    usage,
    webhooks,
)
from tests.support.samples.storage import OWNER, open_account, read_totals

pytestmark = pytest.mark.both_databases

CALLS: dict[str, Callable[[Transaction], object]] = {
    "ledger.recover": lambda transaction: ledger.recover(transaction, OWNER),
    "ledger.release_expired": ledger.release_expired,
    "idempotency.recover": lambda transaction: idempotency.recover(transaction, OWNER),
    "idempotency.delete_expired": idempotency.delete_expired,
    "email_verification.delete_expired": email_verification.delete_expired,
    "purchases.delete_abandoned": purchases.delete_abandoned,
    "sessions.delete_expired": sessions.delete_expired,
    "files.delete_expired": lambda transaction: files.delete_expired(transaction, 500),
    "files.list_page": lambda transaction: files.list_page(
        transaction, "acct_1", processed=True, limit=50, cursor="1-file_1"
    ),
    "files.stored_bytes": lambda transaction: files.stored_bytes(transaction, "acct_1"),
    "files.most_stored_bytes": lambda transaction: files.most_stored_bytes(transaction, "acct_1"),
    "receivers.claim": lambda transaction: receivers.claim(transaction, 32, 8, {"acct_1": 8}),
    "deliveries.list_attempts": lambda transaction: deliveries.list_attempts(
        transaction, "webhook_1", limit=50, cursor="1-a"
    ),
    "deliveries.erase_job": lambda transaction: deliveries.erase_job(transaction, "job_1"),
    "deliveries.delete_expired": lambda transaction: deliveries.delete_expired(transaction, 500),
    "webhooks.delete_expired_secrets": webhooks.delete_expired_secrets,
    "batches.delete_expired": lambda transaction: batches.delete_expired(transaction, 500),
    "job_runs.any_due": lambda transaction: job_runs.any_due(transaction, OWNER),
    "job_runs.claim": lambda transaction: job_runs.claim(transaction, OWNER, 30, idle=True),
    "job_runs.charge": lambda transaction: job_runs.charge(transaction, "acct_1", "address 1", 1.0),
    "job_runs.renew": lambda transaction: job_runs.renew(transaction, OWNER, 30),
    "job_runs.leave": lambda transaction: job_runs.leave(transaction, OWNER),
    "job_runs.find_left": lambda transaction: job_runs.find_left(transaction, OWNER),
    "jobs.list_page": lambda transaction: jobs.list_page(transaction, "acct_1", limit=50),
    "jobs.read_all": lambda transaction: jobs.read_all(transaction, ["job_1", "job_2"]),
    "jobs.referenced_blobs": lambda transaction: jobs.referenced_blobs(transaction, ["job_1.0"]),
    "jobs.delete_expired": lambda transaction: jobs.delete_expired(transaction, 500),
    "jobs.read_state": jobs.read_state,
    "totals.read": totals.read,
    "usage.report": lambda transaction: usage.report(transaction, "acct_1", 0, 86_400),
    "archives.read": lambda transaction: archives.read(transaction, ("acct_1", 5), 86_400 * 30),
    "archives.remove": lambda transaction: archives.remove(transaction, ("acct_1", 5), 86_400 * 30),
}
SMALL = ("backfill", "counter", "counter_change", "archive")  # tables that never have many rows
PARTIAL = (  # indexes with the few rows that are asked for
    *("hold_open", "idempotency_running", "purchase_opening"),
    *("lane_waiting", "job_lease", "job_queued_at"),
)


def scans_of_sqlite(transaction: Transaction, sql: str, values: Any) -> Iterator[str]:
    """The steps of a plan that read a whole table or a whole index."""
    for *_, step in transaction.connection.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values).fetchall():
        found = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?", step)
        if found and found[1] not in (*SMALL, "CONSTANT", "first", "t1") and found[2] not in PARTIAL:
            yield step


def scans_of_postgresql(transaction: Transaction, sql: str, values: Any) -> Iterator[str]:
    """The nodes of a plan that read a whole table or a whole index."""
    for plan_of_small_tables in ("seqscan", "hashjoin", "mergejoin"):  # the tables here are almost empty
        transaction.connection.execute_sql(f"SET LOCAL enable_{plan_of_small_tables} = off")
    ((plan,),) = transaction.connection.execute_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).fetchall()
    nodes = [plan[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        by_index = "Index Cond" in node or "Recheck Cond" in node or node.get("Index Name") in PARTIAL
        if (
            "Scan" in node["Node Type"]
            and "Relation Name" in node
            and node["Relation Name"] not in SMALL
            and not by_index
        ):
            yield f"{node['Node Type']} of {node['Relation Name']} by {node.get('Index Name')}"


def test_no_table_is_scanned(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    open_account(database)
    read_totals(database)

    def scans(transaction: Transaction, statements: list[Any]) -> list[tuple[str, str]]:
        sqlite = isinstance(transaction.connection, peewee.SqliteDatabase)
        find = scans_of_sqlite if sqlite else scans_of_postgresql
        return [(sql, step) for sql, values in statements for step in find(transaction, sql, values)]

    def run(transaction: Transaction, call: Callable[[Transaction], object]) -> int:
        call(transaction)
        return threading.get_ident()

    found = {}
    for name, call in CALLS.items():
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "peewee"):
            thread = database.run_blocking(run, call)  # servers of other tests run statements in other threads
        records = [record for record in caplog.records if record.thread == thread]
        statements: list[Any] = [record.msg for record in records if record.name == "peewee"]
        queries = [
            statement for statement in statements if statement[0].startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
        ]
        assert queries
        found[name] = database.run_blocking(scans, queries)
    assert not any(found.values()), found
