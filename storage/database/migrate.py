"""Schema migrations: runs the numbered scripts in `migrations`, while servers of the previous release still run."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peewee
from playhouse.migrations import Runner

from storage.database.connections import TIMEOUT, is_busy

MIGRATIONS = Path(__file__).parent / "migrations"
_RETRY_INTERVAL = 0.05  # seconds
_LOCK = 0x636F6E76657274  # an arbitrary number, the same on all servers
_LOCK_TIMEOUT = 300  # milliseconds; who waits for the lock of a table makes all others wait for it, too
_LOCK_ATTEMPTS = 60
_LOCK_PAUSE = 0.5  # seconds
_LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE
_BACKFILLS = "CREATE TABLE IF NOT EXISTS backfill (name TEXT PRIMARY KEY, position TEXT NOT NULL)"

log = logging.getLogger("convertd.database")


class NewerSchema(RuntimeError):
    """The schema belongs to a newer release."""


def migrate(connection: peewee.Database) -> None:
    """Applies all pending migrations, each in a transaction of its own, or in none if it has `atomic = False`.

    A new database gets all in one transaction. Servers that start at the same time wait for each other. On
    PostgreSQL, a migration that does not get the locks of its tables in time is rolled back and repeated. Raises
    NewerSchema if the database has migrations that this release does not know.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            with connection.connection_context():
                return _apply(connection)
        except peewee.OperationalError as error:
            # SQLite's own timeout does not cover the switch of a new database to WAL by another process.
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_INTERVAL)


def create(connection: peewee.Database, last: str) -> None:
    """Creates the schema that the migrations up to the `last` result in, in the transaction of the caller.

    Raises NewerSchema if this release does not know that one.
    """
    runner = Runner(connection, str(MIGRATIONS))
    if last not in {migration.name for migration in runner.status()}:
        raise NewerSchema("The copy is of a newer release of convertd.")
    connection.execute_sql(_BACKFILLS)
    runner.up(last)


def create_index(connection: peewee.Database, name: str, columns: str) -> None:
    """Creates an index without locking its table on PostgreSQL. For migrations with `atomic = False`.

    `columns` follows ON. SQLite locks the database meanwhile, for about half a second per million rows.
    """
    if connection.in_transaction():  # SQLite, or a new database
        connection.execute_sql(f"CREATE INDEX {name} ON {columns}")
        return
    log.info("creating the index %s; waits for open transactions, such as backups", name)
    connection.execute_sql("SET lock_timeout = 0")
    connection.execute_sql("SET statement_timeout = 0")
    drop_index(connection, name)  # an attempt that was interrupted leaves an invalid index
    connection.execute_sql(f"CREATE INDEX CONCURRENTLY {name} ON {columns}")


def drop_index(connection: peewee.Database, name: str) -> None:
    """Deletes an index, if it exists, without locking its table on PostgreSQL. For migrations as `create_index`."""
    concurrently = "" if connection.in_transaction() else "CONCURRENTLY "
    connection.execute_sql(f"DROP INDEX {concurrently}IF EXISTS {name}")


def _apply(connection: peewee.Database) -> None:
    with _sqlite(connection) if isinstance(connection, peewee.SqliteDatabase) else _postgresql(connection):
        runner = Runner(connection, str(MIGRATIONS))
        migrations = runner.status()
        if any(migration.path is None for migration in migrations):
            raise NewerSchema("The database was last used by a newer release of convertd.")
        if not any(migration.applied for migration in migrations):
            _create(connection, runner)
            return
        for migration in migrations:
            if not migration.applied:
                _run(connection, runner, migration.name)


def _create(connection: peewee.Database, runner: Runner) -> None:
    """Runs all migrations of a new database, in one transaction. It has no rows for backfills to change."""
    with connection.atomic():
        connection.execute_sql(_BACKFILLS)
        runner.up()
        connection.execute_sql("DELETE FROM backfill")


def _run(connection: peewee.Database, runner: Runner, name: str) -> None:
    """Runs a migration, unless another server has run it meanwhile."""
    if isinstance(connection, peewee.SqliteDatabase):
        with connection.atomic():  # takes the write lock
            connection.execute_sql(_BACKFILLS)
            runner.up(name)
        return
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            connection.execute_sql(f"SET lock_timeout = {_LOCK_TIMEOUT}")
            connection.execute_sql(_BACKFILLS)
            runner.up(name)
            return
        except peewee.OperationalError as error:
            in_use = getattr(getattr(error, "orig", None), "sqlstate", None) == _LOCK_NOT_AVAILABLE
            if not in_use or attempt == _LOCK_ATTEMPTS - 1:
                raise
            log.warning("migration %s: a table is in use; trying again", name)
            time.sleep(_LOCK_PAUSE)


@contextmanager
def _sqlite(connection: peewee.SqliteDatabase) -> Iterator[None]:
    # Rebuilding a table must not delete the rows that refer to it. SQLite ignores this pragma inside of a transaction.
    connection.pragma("foreign_keys", 0)
    try:
        yield
    finally:
        connection.pragma("foreign_keys", 1)


@contextmanager
def _postgresql(connection: peewee.Database) -> Iterator[None]:
    # Tried instead of waited for: CREATE INDEX CONCURRENTLY of the server that has the lock waits for all statements.
    while not connection.execute_sql("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()[0]:
        time.sleep(_RETRY_INTERVAL)
    try:
        yield
    finally:
        connection.execute_sql("RESET lock_timeout")
        connection.execute_sql("RESET statement_timeout")
        connection.execute_sql("SELECT pg_advisory_unlock(%s)", (_LOCK,))
