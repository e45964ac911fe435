"""Connections to SQLite and PostgreSQL: opened from a URL, and the meaning of their errors."""

import errno
import sqlite3
from contextlib import suppress
from pathlib import Path

import peewee
from playhouse.pool import PooledPostgresqlDatabase, PooledSqliteDatabase

from storage.errors import DatabaseBusy

TIMEOUT = 5  # seconds; for the write lock and a connection

_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql://"
_DISK_FULL = "53100"  # SQLSTATE


class UnsupportedUrl(ValueError):
    """The URL names no supported database. The message omits the URL, which may contain a password."""


def sqlite_path(url: str) -> Path | None:
    """Returns the path of an SQLite URL, or None for a PostgreSQL URL. Raises UnsupportedUrl."""
    if url.startswith(_POSTGRESQL):
        return None
    path = Path(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE) or not path.name:
        raise UnsupportedUrl("A database URL is sqlite:///path/to/file or postgresql://user@host/name.")
    return path


def open_sqlite(path: Path) -> peewee.SqliteDatabase:
    """Opens the connection that writes, one per thread. Creates the file, for its owner only, and its folder."""
    # Jobs run as other users in a folder below the data folder.
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)  # SQLite creates its other files with the same mode
    # Not NORMAL, which can lose committed transactions in a power cut.
    pragmas = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 1}
    return peewee.SqliteDatabase(str(path), pragmas=pragmas, timeout=TIMEOUT, lock_type="IMMEDIATE")


def open_sqlite_readers(path: Path, size: int) -> PooledSqliteDatabase:
    """Opens a pool of connections that cannot write."""
    pragmas = {"query_only": 1}
    return PooledSqliteDatabase(
        str(path), max_connections=size, pragmas=pragmas, timeout=TIMEOUT, check_same_thread=False
    )


def open_postgresql(url: str, size: int) -> PooledPostgresqlDatabase:
    """Opens a pool of connections."""
    options = {"connect_timeout": TIMEOUT, "application_name": "convertd"}
    return PooledPostgresqlDatabase(url, max_connections=size, prefer_psycopg3=True, **options)


def is_busy(error: BaseException) -> bool:
    """Whether SQLite could not get a lock in time."""
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode == sqlite3.SQLITE_BUSY


def translate(error: BaseException) -> BaseException:
    """Returns DatabaseBusy for a locked database, OSError (ENOSPC) for a full disk, any other error unchanged."""
    if not isinstance(error, peewee.OperationalError | peewee.InterfaceError):
        return error
    if is_busy(error):
        translated: Exception = DatabaseBusy()
    elif _is_full(error):
        translated = OSError(errno.ENOSPC, "The disk of the database is full.")
    else:
        return error
    translated.__cause__ = error
    return translated


def _is_full(error: BaseException | None) -> bool:
    """Whether the cause is a full disk."""
    # SQLite rolls back by itself then; the rollback that follows fails with an error of its own.
    while error is not None:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return True
        if getattr(error, "sqlstate", None) == _DISK_FULL:
            return True
        error = error.__context__
    return False
