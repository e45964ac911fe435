"""Database: runs functions in transactions, on SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import peewee

from storage.calls import Call
from storage.connection_pool import ConnectionPool
from storage.connections import TIMEOUT, is_busy, open_postgresql, open_sqlite, open_sqlite_readers, sqlite_path
from storage.errors import DatabaseBusy
from storage.migrate import migrate
from storage.sqlite_writer import SqliteWriter
from storage.transaction import Transaction

P = ParamSpec("P")
R = TypeVar("R")

_CONNECTIONS = 8  # to PostgreSQL
_READERS = 4  # connections to SQLite that only read
_RETRY_INTERVAL = 0.05  # seconds


class Database:
    """A database whose schema is migrated when it is opened. Transactions run in its own threads.

    `url` is `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://…`; `clock` returns Unix time in
    seconds. With SQLite one thread writes and others read; with PostgreSQL all transactions share a pool.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._writes: SqliteWriter | ConnectionPool
        path = sqlite_path(url)
        if path is None:
            pool = open_postgresql(url, _CONNECTIONS)
            try:
                _migrate(pool)
            except BaseException:
                pool.close_all()
                raise
            self._writes = self._reads = ConnectionPool(pool, _CONNECTIONS, clock)
        else:
            connection = open_sqlite(path)
            _migrate(connection)
            self._writes = SqliteWriter(connection, clock)
            self._reads = ConnectionPool(open_sqlite_readers(path, _READERS), _READERS, clock)

    async def run(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function in a transaction, and rolls its changes back if it raises.

        The function runs a second time if its transaction is rolled back for a temporary reason: a lost connection, a
        deadlock, or the failure of another function that SQLite was to commit together with it. Raises CommitUnknown
        if the connection is lost during the commit, DatabaseBusy if the database is locked or unreachable, OSError
        (ENOSPC) if its disk is full. If the caller is cancelled, CancelledError is raised after the transaction has
        ended, or at once if it has not started.
        """
        call = Call(lambda transaction: function(transaction, *args, **kwargs), asyncio.get_running_loop())
        self._writes.submit(call)
        return await call.wait()

    async def run_with_timeout(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, but also raises DatabaseBusy if the function has not started after 5 seconds."""
        call = Call(lambda transaction: function(transaction, *args, **kwargs), asyncio.get_running_loop())
        self._writes.submit(call)
        return await _wait_with_timeout(call)

    async def read(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function that only reads, on a consistent snapshot. Raises as `run_with_timeout` does.

        With SQLite, the function neither waits for writers nor delays them.
        """
        call = Call(lambda transaction: function(transaction, *args, **kwargs), asyncio.get_running_loop())
        self._reads.submit(call, read_only=True)
        return await _wait_with_timeout(call)

    def run_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, for callers without an event loop. Blocks."""
        call = Call(lambda transaction: function(transaction, *args, **kwargs))
        self._writes.submit(call)
        return call.future.result()

    def close(self) -> None:
        """Waits for submitted transactions and closes all connections. Blocks."""
        if self._reads is not self._writes:
            self._reads.close()
        self._writes.close()


async def _wait_with_timeout(call: Call[R]) -> R:
    """Returns the result of the call. Raises DatabaseBusy if the call has not started after 5 seconds."""
    timer = asyncio.get_running_loop().call_later(TIMEOUT, call.cancel)
    try:
        return await call.wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise DatabaseBusy from None
    finally:
        timer.cancel()


def _migrate(connection: peewee.Database) -> None:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            with connection.connection_context():
                return migrate(connection)
        except peewee.OperationalError as error:
            # SQLite's own timeout does not cover the switch of a new database to WAL by another process.
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_INTERVAL)
