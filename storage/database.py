"""Database: runs functions in transactions, on SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import peewee
from playhouse.pool import PooledPostgresqlDatabase

from storage.errors import CommitUnknown, DatabaseBusy
from storage.migrate import migrate
from storage.transaction import Transaction

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("convertd.database")

_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql://"
_CONNECTIONS = 8  # to PostgreSQL; SQLite has one writer
_TIMEOUT = 5  # seconds; for the write lock, a connection, and the queue of `run_with_timeout`
_RETRY_INTERVAL = 0.05  # seconds
_DISK_FULL = "53100"  # SQLSTATE
_ROLLED_BACK = ("40001", "40P01")  # SQLSTATEs of a serialization failure and a deadlock


class UnsupportedUrl(ValueError):
    """The URL names no supported database. The message omits the URL, which may contain a password."""


class _Unreachable(peewee.OperationalError):
    """The server cannot be reached or refuses the connection."""


class Database:
    """A database whose schema is migrated when it is opened. Transactions run in its own threads.

    `url` is `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://…`; `clock` returns Unix time in
    seconds.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._peewee = _open(url)
        self._pooled = isinstance(self._peewee, PooledPostgresqlDatabase)
        self._threads = ThreadPoolExecutor(_CONNECTIONS if self._pooled else 1, thread_name_prefix="database")
        try:
            self._threads.submit(self._migrate).result()
        except BaseException:
            self.close()
            raise

    async def run(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function in a transaction, which is rolled back if the function raises.

        The function runs a second time if the connection is lost or a deadlock is resolved before the commit. Raises
        CommitUnknown if the connection is lost during the commit, DatabaseBusy if the database is locked or
        unreachable, OSError (ENOSPC) if its disk is full. If the caller is cancelled, CancelledError is raised after
        the transaction has ended, or at once if it has not started.
        """
        return await self._result(self._submit(function, *args, **kwargs))

    async def run_with_timeout(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, but also raises DatabaseBusy if the function has not started after 5 seconds."""
        job = self._submit(function, *args, **kwargs)
        timer = asyncio.get_running_loop().call_later(_TIMEOUT, job.cancel)
        try:
            return await self._result(job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise DatabaseBusy from None
        finally:
            timer.cancel()

    def _submit(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        return self._threads.submit(self._attempt, lambda transaction: function(transaction, *args, **kwargs))

    async def _result(self, job: Future[R]) -> R:
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
            raise

    def run_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, for callers without an event loop. Blocks."""
        return self._submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """Waits for running transactions and closes all connections. Blocks."""
        self._threads.submit(self._peewee.close).result()
        self._threads.shutdown()
        if isinstance(self._peewee, PooledPostgresqlDatabase):
            self._peewee.close_all()

    def _attempt(self, work: Callable[[Transaction], R]) -> R:
        try:
            return self._transact(work)
        except _Unreachable as error:
            log.warning("database unreachable: %s", str(error).partition("\n")[0])
            raise DatabaseBusy from error

    def _transact(self, work: Callable[[Transaction], R], *, retry: bool = True) -> R:
        with self._connected():
            committing = False
            try:
                with self._peewee.atomic():
                    result = work(Transaction(self._peewee, int(self._clock())))
                    committing = True
                return result
            except (peewee.OperationalError, peewee.InterfaceError) as error:
                if _is_busy(error):
                    raise DatabaseBusy from error
                if _is_full(error):
                    raise OSError(errno.ENOSPC, "The disk of the database is full.") from error
                if not self._can_retry(error, committing):
                    raise
                if not retry:
                    raise DatabaseBusy from error
        return self._transact(work, retry=False)

    def _can_retry(self, error: peewee.PeeweeException, committing: bool) -> bool:
        """Whether the transaction was rolled back for a temporary reason. Raises CommitUnknown if that is uncertain."""
        if self._peewee.is_connection_usable():
            return getattr(getattr(error, "orig", None), "sqlstate", None) in _ROLLED_BACK
        if committing:
            raise CommitUnknown from error
        return True

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            self._peewee.connect(reuse_if_open=True)
        except peewee.OperationalError as error:
            if self._pooled:
                raise _Unreachable(str(error)) from error
            raise
        try:
            yield
        finally:
            if self._pooled:
                self._peewee.close()  # returns the connection to the pool

    def _migrate(self) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                with self._connected():
                    return migrate(self._peewee)
            except peewee.OperationalError as error:
                # SQLite's own timeout does not cover the switch of a new database to WAL by another process.
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_INTERVAL)


def _is_busy(error: peewee.PeeweeException) -> bool:
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode == sqlite3.SQLITE_BUSY


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


def _open(url: str) -> peewee.Database:
    if url.startswith(_POSTGRESQL):
        options = {"connect_timeout": _TIMEOUT, "application_name": "convertd"}
        server: peewee.Database = PooledPostgresqlDatabase(
            url, max_connections=_CONNECTIONS, prefer_psycopg3=True, **options
        )
        return server
    path = Path(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE) or not path.name:
        raise UnsupportedUrl("A database URL is sqlite:///path/to/file or postgresql://user@host/name.")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not NORMAL, which can lose committed transactions in a power cut.
    pragmas = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 1}
    return peewee.SqliteDatabase(str(path), pragmas=pragmas, timeout=_TIMEOUT, lock_type="IMMEDIATE")
