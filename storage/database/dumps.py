"""Copies of a whole database in files: of SQLite, the file; of PostgreSQL, one for each table."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import peewee

from storage.database.connections import limit_statements, open_postgresql, sqlite_path
from storage.database.migrate import create, migrate

_SQLITE_FILE = "database.sqlite3"
_TABLES_FILE = "tables.json"
_HISTORY = "schema_migration"
_TABLES = (
    "SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
    " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND attnum > 0 AND NOT attisdropped"
    f" AND relname <> '{_HISTORY}' ORDER BY relname, attnum"
)
_REFERENCES = (
    "SELECT child.relname, parent.relname FROM pg_constraint"
    " JOIN pg_class child ON child.oid = conrelid JOIN pg_class parent ON parent.oid = confrelid WHERE contype = 'f'"
)


class NotRestorable(RuntimeError):
    """The database is used, or of another kind than the copy; `str(error)` has the reason."""


def dump(url: str, folder: Path) -> None:
    """Writes a consistent copy of the database into the folder, while servers use it. Blocks."""
    path = sqlite_path(url)
    if path is None:
        connection = open_postgresql(url)
        with connection.connection_context():
            _dump_tables(connection, folder)
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.execute("VACUUM INTO ?", (str(folder / _SQLITE_FILE),))


def check_unused(url: str) -> None:
    """Raises NotRestorable if the database has tables, or if it is a file that exists."""
    path = sqlite_path(url)
    if path is not None:
        if path.exists():
            raise NotRestorable(f"The database {path} exists.")
        return
    connection = open_postgresql(url)
    with connection.connection_context():
        if connection.get_tables():
            raise NotRestorable("The database has tables.")


def load(url: str, folder: Path) -> None:
    """Fills an unused database with a copy, and migrates it to the schema of this release. Blocks.

    Raises NotRestorable, and NewerSchema for the copy of a newer release.
    """
    check_unused(url)
    path = sqlite_path(url)
    name, kind = (_TABLES_FILE, "PostgreSQL") if path is None else (_SQLITE_FILE, "SQLite")
    if not (folder / name).is_file():
        raise NotRestorable(f"The copy is not of {kind}, as the database is.")
    if path is not None:
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        shutil.copyfile(folder / _SQLITE_FILE, path)
        return
    connection = open_postgresql(url)
    with connection.connection_context():
        limit_statements(connection, 0)
        copied = json.loads((folder / _TABLES_FILE).read_text())
        with connection.atomic():
            create(connection, copied["migration"])
            _load_tables(connection, copied["tables"], folder)
    migrate(open_postgresql(url))


def _dump_tables(connection: peewee.PostgresqlDatabase, folder: Path) -> None:
    limit_statements(connection, 0)
    connection.execute_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    tables: dict[str, list[str]] = {}
    for table, column in connection.execute_sql(_TABLES).fetchall():
        tables.setdefault(table, []).append(column)
    cursor: Any = connection.cursor()
    for table, columns in tables.items():
        statement = f"COPY {_columns(table, columns)} TO STDOUT"
        with (folder / table).open("wb") as file, _errors_of_peewee(), cursor.copy(statement) as blocks:
            for block in blocks:
                file.write(block)
    ((migration,),) = connection.execute_sql(f"SELECT max(name) FROM {_HISTORY}").fetchall()
    (folder / _TABLES_FILE).write_text(json.dumps({"migration": migration, "tables": tables}))
    connection.execute_sql("COMMIT")


def _load_tables(connection: peewee.PostgresqlDatabase, tables: dict[str, list[str]], folder: Path) -> None:
    """Fills the tables, parents before their children. Triggers, whose results are in the copy, do not run."""
    sorter = TopologicalSorter({table: set[str]() for table in tables})
    for child, parent in connection.execute_sql(_REFERENCES).fetchall():
        if child != parent:
            sorter.add(child, parent)
    connection.execute_sql(f"TRUNCATE {', '.join(map(_quoted, tables))}")
    cursor: Any = connection.cursor()
    for table in sorter.static_order():
        connection.execute_sql(f"ALTER TABLE {_quoted(table)} DISABLE TRIGGER USER")
        statement = f"COPY {_columns(table, tables[table])} FROM STDIN"
        with (folder / table).open("rb") as file, _errors_of_peewee(), cursor.copy(statement) as copy:
            while block := file.read(1 << 20):
                copy.write(block)
        connection.execute_sql(f"ALTER TABLE {_quoted(table)} ENABLE TRIGGER USER")


@contextmanager
def _errors_of_peewee() -> Iterator[None]:
    """Raises errors of the driver as Peewee does. COPY needs the driver, because Peewee lacks it."""
    import psycopg  # noqa: PLC0415, SQLite needs no driver

    try:
        yield
    except psycopg.Error as error:
        raise peewee.DatabaseError(str(error)) from error


def _columns(table: str, columns: Sequence[str]) -> str:
    return f"{_quoted(table)} ({', '.join(map(_quoted, columns))})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
