"""Connections to SQLite and PostgreSQL: opened from a URL, and the meaning of their errors."""

import errno
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import peewee

from storage.errors import DatabaseBusy

TIMEOUT = 5  # seconds for the write lock of SQLite, and until PostgreSQL acknowledges what was sent

_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql://"
POSTGRESQL_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "connect_timeout": 3,  # seconds
        "tcp_user_timeout": TIMEOUT * 1000,  # milliseconds
        "keepalives_idle": TIMEOUT,
        "keepalives_interval": 1,
        "keepalives_count": TIMEOUT,
        "application_name": "convertd",
    }
)
"""The options of connections, which fail soon if the network delivers nothing."""

_DISK_FULL = "53100"  # SQLSTATE
_CANCELED = "57014"  # SQLSTATE of a statement that takes longer than the limit


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
    # Without `secure_delete`, passwords in requests of jobs would stay in the file when the jobs have ended.
    pragmas = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 1, "secure_delete": 1}
    return peewee.SqliteDatabase(str(path), pragmas=pragmas, timeout=TIMEOUT, lock_type="IMMEDIATE")


def open_sqlite_reader(path: Path, timeout: float = TIMEOUT) -> peewee.SqliteDatabase:
    """Opens a connection that cannot write, for one thread at a time. It waits up to `timeout` seconds for a lock."""
    pragmas = {"query_only": 1}
    return peewee.SqliteDatabase(
        str(path), pragmas=pragmas, timeout=timeout, check_same_thread=False, thread_safe=False
    )


def open_postgresql(url: str) -> peewee.PostgresqlDatabase:
    """Opens a connection, for one thread at a time."""
    return peewee.PostgresqlDatabase(url, thread_safe=False, prefer_psycopg3=True, **POSTGRESQL_OPTIONS)


def limit_statements(connection: peewee.Database, seconds: float) -> None:
    """Makes PostgreSQL end statements that take longer, and transactions whose client does nothing for so long.

    Otherwise they would keep their locks after the client has given up, or while it is stopped. With 0, neither has a
    limit, whatever the database or the user has as a default: commands such as the audit may take long.
    """
    if isinstance(connection, peewee.PostgresqlDatabase):
        names = ("statement_timeout", "idle_in_transaction_session_timeout")
        connection.execute_sql("; ".join(f"SET {name} = {round(seconds * 1000)}" for name in names))


def is_busy(error: BaseException) -> bool:
    """Whether SQLite could not get a lock in time."""
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode == sqlite3.SQLITE_BUSY


def sqlstate(error: BaseException) -> str | None:
    """Returns the code of an error of PostgreSQL."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def translate(error: BaseException) -> BaseException:
    """Returns DatabaseBusy for locks that last too long, OSError (ENOSPC) for a full disk, other errors unchanged."""
    if not isinstance(error, peewee.OperationalError | peewee.InterfaceError):
        return error
    if is_busy(error) or sqlstate(error) == _CANCELED:
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
