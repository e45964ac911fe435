"""Schema migrations: runs the numbered scripts in `migrations`."""

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


class NewerSchema(RuntimeError):
    """The schema belongs to a newer release."""


def migrate(connection: peewee.Database) -> None:
    """Applies all pending migrations in one transaction. Servers that start at the same time wait for each other.

    Raises NewerSchema if the database has migrations that this release does not know.
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


def _apply(connection: peewee.Database) -> None:
    with _exclusive_transaction(connection):
        runner = Runner(connection, str(MIGRATIONS))
        if any(migration.path is None for migration in runner.status()):
            raise NewerSchema("The database was last used by a newer release of convertd.")
        runner.up()


@contextmanager
def _exclusive_transaction(connection: peewee.Database) -> Iterator[None]:
    if isinstance(connection, peewee.SqliteDatabase):
        # Rebuilding a table must not delete the rows that refer to it. SQLite ignores this pragma inside of a
        # transaction.
        connection.pragma("foreign_keys", 0)
        try:
            with connection.atomic("IMMEDIATE"):
                yield
        finally:
            connection.pragma("foreign_keys", 1)
    else:
        with connection.atomic():
            connection.execute_sql("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            yield
