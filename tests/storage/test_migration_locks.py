"""No migration reads or changes the rows of a table while it locks the table, on PostgreSQL."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peewee
import psycopg
import pytest
from playhouse.migrations import Migration

from storage.database import Database, migrate
from storage.database.connections import open_postgresql
from storage.tables import ledger
from tests.conftest import MakeUrl
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import OWNER, Clock, open_earlier_account, settle_earlier

ROWS = 50
VALUES: dict[tuple[str, str], str | None] = {  # the values that constraints allow
    ("hold", "state"): "held",
    ("idempotency", "state"): "running",
    ("job", "state"): "completed",
    ("job", "request"): None,
    ("job", "lease_until"): None,
    ("purchase", "state"): "paid",
    ("reversal", "kind"): "refund",
}
COLUMNS = """
    SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
    JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
    AND table_name NOT IN ('schema_migration', 'backfill') ORDER BY 1, ordinal_position
"""
ROWS_TOUCHED = """
    SELECT relname, seq_tup_read + COALESCE(idx_tup_fetch, 0) + n_tup_upd + n_tup_del
    FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()
"""
WITHOUT_SCANS = ("SET ", "DROP INDEX CONCURRENTLY ", "CREATE INDEX CONCURRENTLY ")


def fill(connection: peewee.Database) -> None:
    """Inserts rows into the tables that have none."""
    connection.execute_sql("SET session_replication_role = replica")  # disables foreign keys and triggers
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute_sql(COLUMNS).fetchall():
        name = "id" if column in ("account", "batch", "api_key", "purchase", "payment") else column
        value = {"text": f"'{name}_' || number", "boolean": "true"}.get(kind, "number")
        if (table, column) in VALUES:
            constant = VALUES[table, column]
            value = "NULL" if constant is None else f"'{constant}'"
        tables.setdefault(table, {})[column] = value
    for table, values in tables.items():
        select = f"SELECT {', '.join(values.values())} FROM generate_series(1, {ROWS}) AS number"
        empty = f"WHERE NOT EXISTS (SELECT 1 FROM {table})"
        connection.execute_sql(f"INSERT INTO {table} ({', '.join(values)}) {select} {empty}")
    connection.execute_sql("RESET session_replication_role")


def locked_scans(connection: peewee.Database, script: Migration, caplog: pytest.LogCaptureFixture) -> set[str]:
    """Runs a migration. Returns the tables whose rows it reads or changes in its transaction.

    For a script without a transaction, returns the statements that may lock a table for as long as they run.
    """
    module = script.load()
    if getattr(module, "atomic", True):
        with connection.atomic():
            before = dict(connection.execute_sql(ROWS_TOUCHED).fetchall())
            module.up(None, connection)
            after = dict(connection.execute_sql(ROWS_TOUCHED).fetchall())
        return {table for table, rows in after.items() if rows - before.get(table, 0) >= ROWS}
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "peewee"):
        module.up(None, connection)
    own = [record for record in caplog.records if record.thread == threading.get_ident()]
    statements = {str(record.msg[0]) for record in own if record.name == "peewee"}
    assert statements
    return {statement for statement in statements if not statement.startswith(WITHOUT_SCANS)}


@pytest.fixture
def connection(new_postgres_url: MakeUrl) -> Iterator[peewee.Database]:
    connection = open_postgresql(new_postgres_url())
    connection.connect()
    connection.execute_sql("CREATE TABLE backfill (name TEXT PRIMARY KEY, position TEXT NOT NULL)")
    yield connection
    connection.close()


def test_no_migration_scans_under_a_lock(connection: peewee.Database, caplog: pytest.LogCaptureFixture) -> None:
    """If it fails: add a nullable column, a table, or an index with `create_index`, and fill it by a backfill."""
    found = {}
    for script in Migration.load_directory(str(migrate.MIGRATIONS)):
        fill(connection)
        found[script.name] = locked_scans(connection, script, caplog)
    assert not any(found.values()), found
    assert len(found) >= 10


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE thing SET number = 1",
        "DELETE FROM thing",
        "INSERT INTO other SELECT number, 1 FROM thing",
        "CREATE INDEX thing_number ON thing (number)",
        "ALTER TABLE thing ALTER COLUMN number SET NOT NULL",
        "ALTER TABLE thing ADD CHECK (number > 0)",
        "ALTER TABLE thing ALTER COLUMN number TYPE NUMERIC",
        "ALTER TABLE thing ADD COLUMN at DOUBLE PRECISION DEFAULT random()",
        "ALTER TABLE thing ADD UNIQUE (number)",
    ],
)
@pytest.mark.parametrize("atomic", [True, False])
def test_scans_are_found(
    connection: peewee.Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, statement: str, *, atomic: bool
) -> None:
    connection.execute_sql("CREATE TABLE thing (number BIGINT)")
    connection.execute_sql("CREATE TABLE other (number BIGINT, further BIGINT)")
    fill(connection)
    up = f"def up(migrator, database):\n    database.execute_sql({statement!r})\n"
    (tmp_path / "0001_scan.py").write_text(f"atomic = {atomic}\n{up}")
    (script,) = Migration.load_directory(str(tmp_path))
    assert locked_scans(connection, script, caplog)


@pytest.mark.parametrize("empty_url", ["postgresql"], indirect=True)
def test_a_migration_that_waits_for_a_table_does_not_make_others_wait(
    empty_url: str, open_earlier: OpenEarlier, clock: Clock
) -> None:
    """Statements queue behind one that waits for the lock of a table."""
    earlier = open_earlier(5)
    account = open_earlier_account(earlier, 50)

    def charge() -> None:
        earlier.run_blocking(settle_earlier, earlier.run_blocking(ledger.reserve, account, 1, OWNER))

    with psycopg.connect(empty_url) as long, ThreadPoolExecutor(2) as threads:
        long.execute("SELECT COUNT(*) FROM usage")  # locks the table until the end of the transaction
        long.execute("LOCK TABLE usage IN ROW EXCLUSIVE MODE")
        upgrade = threads.submit(Database, empty_url, clock=clock)
        try:
            for _ in range(20):
                threads.submit(charge).result(5)
            assert not upgrade.done()
        finally:
            long.rollback()
        upgrade.result(30).close()
    assert earlier.run_blocking(ledger.balance, account) == 30
