"""The tables of a database, brought up to date by the numbered scripts in `migrations`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peewee
from playhouse.migrations import Runner

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x636F6E76657274  # any number, as long as all servers use the same


class NewerSchema(RuntimeError):
    """The database was last used by a newer release, whose tables this one does not know."""


def migrate(connection: peewee.Database) -> None:
    """Applies what has not yet been applied, all of it or nothing. Whoever comes first does it, others wait."""
    with _alone(connection):
        runner = Runner(connection, str(MIGRATIONS))
        if any(migration.path is None for migration in runner.status()):
            raise NewerSchema("The database was last used by a newer release of convertd.")
        runner.up()


@contextmanager
def _alone(connection: peewee.Database) -> Iterator[None]:
    if isinstance(connection, peewee.SqliteDatabase):
        # A table that is rebuilt must not drag along the rows that refer to it. Inside of a transaction this
        # could no longer be said.
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
