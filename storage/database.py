"""Database: where everything is kept, and the one door to it."""

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
_CONNECTIONS = 8  # of a PostgreSQL database; SQLite has one writer
_PATIENCE = 5  # seconds to wait for another writer, or for a server to answer
_DISK_FULL = "53100"  # its SQLSTATE
_ROLLED_BACK = ("40001", "40P01")  # the SQLSTATEs of a conflict and of a deadlock


class UnsupportedUrl(ValueError):
    """A URL of no database that can be used. The message does not show it: it may hold a password."""


class _Unreachable(peewee.OperationalError):
    """There is no server, or it lets nobody in."""


class Database:
    """A database, with its tables up to date. Transactions run in threads of its own, never in the caller's.

    `url` is `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://…`; the clock gives Unix time.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._peewee = _opened(url)
        self._pooled = isinstance(self._peewee, PooledPostgresqlDatabase)
        self._threads = ThreadPoolExecutor(_CONNECTIONS if self._pooled else 1, thread_name_prefix="database")
        try:
            self._threads.submit(self._prepare).result()
        except BaseException:
            self.close()
            raise

    async def run(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function in a transaction, which is rolled back where it raises.

        It may run twice, when the connection was lost or a deadlock broken before the commit. Raises
        OutcomeUnknown where the connection was lost during the commit, DatabaseBusy where another process keeps it
        locked or it cannot be reached, and OSError (ENOSPC) where its disk is full. When cancelled, the function has
        either never begun or run to its end, commit included, before CancelledError comes.
        """
        return await self._done(self._begun(function, *args, **kwargs))

    async def run_promptly(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same for what nothing has been done for yet: DatabaseBusy, too, where its turn does not come in time."""
        job = self._begun(function, *args, **kwargs)
        given_up = asyncio.get_running_loop().call_later(_PATIENCE, job.cancel)
        try:
            return await self._done(job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise DatabaseBusy from None
        finally:
            given_up.cancel()

    def _begun(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        return self._threads.submit(self._attempt, lambda transaction: function(transaction, *args, **kwargs))

    async def _done(self, job: Future[R]) -> R:
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
            raise

    def run_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same for callers without an event loop: blocks until it is done."""
        return self._begun(function, *args, **kwargs).result()

    def close(self) -> None:
        """Lets what runs come to its end, then closes every connection. Blocks."""
        self._threads.submit(self._peewee.close).result()
        self._threads.shutdown()
        if isinstance(self._peewee, PooledPostgresqlDatabase):
            self._peewee.close_all()

    def _attempt(self, work: Callable[[Transaction], R]) -> R:
        try:
            return self._transact(work)
        except _Unreachable as error:
            log.warning("the database cannot be reached: %s", str(error).partition("\n")[0])
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
                    raise OSError(errno.ENOSPC, "the disk of the database is full") from error
                if not self._came_to_nothing(error, committing):
                    raise
                if not retry:
                    raise DatabaseBusy from error
        return self._transact(work, retry=False)

    def _came_to_nothing(self, error: peewee.PeeweeException, committing: bool) -> bool:
        """Whether the transaction has certainly left no trace and may well succeed if it is run again."""
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
                self._peewee.close()  # goes back to the pool, which asks it whether it lives before it is used again

    def _prepare(self) -> None:
        with self._connected():
            migrate(self._peewee)


def _is_busy(error: peewee.PeeweeException) -> bool:
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _is_full(error: BaseException | None) -> bool:
    """Whether this is why it failed, or why there was nothing to roll back: SQLite does that by itself then."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return True
        if getattr(error, "sqlstate", None) == _DISK_FULL:
            return True
        error = error.__context__
    return False


def _opened(url: str) -> peewee.Database:
    if url.startswith(_POSTGRESQL):
        options = {"connect_timeout": _PATIENCE, "application_name": "convertd"}
        server: peewee.Database = PooledPostgresqlDatabase(
            url, max_connections=_CONNECTIONS, prefer_psycopg3=True, **options
        )
        return server
    path = Path(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE) or not path.name:
        raise UnsupportedUrl("A database URL is sqlite:///path/to/file or postgresql://user@host/name.")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The journal is of money: it has to survive a power cut, so synchronous is not NORMAL.
    pragmas = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 1}
    return peewee.SqliteDatabase(str(path), pragmas=pragmas, timeout=_PATIENCE, lock_type="IMMEDIATE")
