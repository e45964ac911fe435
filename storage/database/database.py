"""Database: runs functions in transactions, on SQLite or PostgreSQL. SqliteWriter: the thread that writes to SQLite."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import peewee

from storage.database.connection_pool import ConnectionPool
from storage.database.connections import (
    TIMEOUT,
    open_postgresql,
    open_sqlite,
    open_sqlite_readers,
    sqlite_path,
    translate,
)
from storage.database.migrate import migrate
from storage.database.transaction import Transaction
from storage.errors import DatabaseBusy

P = ParamSpec("P")
R = TypeVar("R")

_CONNECTIONS = 8  # to PostgreSQL
_READERS = 4  # connections to SQLite that only read
_GROUP_SIZE = 64  # functions


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
                migrate(pool)
            except BaseException:
                pool.close_all()
                raise
            self._writes = self._reads = ConnectionPool(pool, _CONNECTIONS, clock)
        else:
            connection = open_sqlite(path)
            migrate(connection)
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
        return await _result(self._writes.submit(lambda transaction: function(transaction, *args, **kwargs)))

    async def run_with_timeout(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, but also raises DatabaseBusy if the function has not started after 5 seconds."""
        return await _result(self._writes.submit(lambda transaction: function(transaction, *args, **kwargs)), TIMEOUT)

    async def read(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function that only reads, on a consistent snapshot. Raises as `run_with_timeout` does.

        With SQLite, the function neither waits for writers nor delays them.
        """
        future = self._reads.submit(lambda transaction: function(transaction, *args, **kwargs), read_only=True)
        return await _result(future, TIMEOUT)

    def run_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, for callers without an event loop. Blocks."""
        return self._writes.submit(lambda transaction: function(transaction, *args, **kwargs)).result()

    def read_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `read`, for callers without an event loop, and without a timeout. Blocks."""
        return self._reads.submit(lambda transaction: function(transaction, *args, **kwargs), read_only=True).result()

    def close(self) -> None:
        """Waits for submitted transactions and closes all connections. Blocks."""
        if self._reads is not self._writes:
            self._reads.close()
        self._writes.close()


async def _result(future: Future[R], seconds: float | None = None) -> R:
    """Returns the result of a transaction. Raises DatabaseBusy if it has not started after `seconds`.

    If the caller is cancelled, CancelledError is raised after the transaction has ended, or at once if it has not
    started.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    timer = None if seconds is None else loop.call_later(seconds, future.cancel)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not future.cancel():
            await ended.wait()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if future.cancelled():
        raise DatabaseBusy
    return future.result()


@dataclass
class _Call(Generic[R]):
    """A function to run in a transaction, with its result or error, which the future receives after the commit."""

    function: Callable[[Transaction], R]
    future: Future[R]
    result: R | None = None
    error: BaseException | None = None


class SqliteWriter:
    """Runs functions in groups of at most 64: one transaction with one savepoint per function, one commit.

    A commit waits for the disk, and SQLite has one writer at a time, so a commit per function would make each wait for
    the disk in turn. A function that raises is rolled back alone. `clock` returns Unix time in seconds.
    """

    def __init__(self, connection: peewee.SqliteDatabase, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database-writer")
        self._waiting: deque[_Call[Any]] = deque()
        self._scheduled = False  # whether the thread will take what waits

    def submit(self, function: Callable[[Transaction], R]) -> Future[R]:
        """Runs the function in the next group."""
        call: _Call[R] = _Call(function, Future())
        self._waiting.append(call)
        if not self._scheduled:
            self._scheduled = True
            self._thread.submit(self._run_groups)
        return call.future

    def close(self) -> None:
        """Waits for all submitted functions and closes the connection. Blocks."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _run_groups(self) -> None:
        # Reset first: a call that is added from now on schedules another run, in case the loop misses it.
        self._scheduled = False
        while group := [self._waiting.popleft() for _ in range(min(len(self._waiting), _GROUP_SIZE))]:
            self._run(group)

    def _run(self, group: Sequence[_Call[Any]]) -> None:
        """Commits the calls together. If their transaction fails as a whole, each runs again, in one of its own."""
        error: BaseException | None = None
        try:
            self._connection.execute_sql("BEGIN IMMEDIATE")  # waits for the write lock
        except BaseException as failure:
            error = failure
        # Only now, because a call that has started cannot be cancelled while it waits for the lock.
        calls = [call for call in group if call.future.running() or call.future.set_running_or_notify_cancel()]
        if error is None:
            try:
                self._transact(calls)
            except BaseException as failure:
                if len(calls) > 1:
                    for call in calls:
                        self._run([call])
                    return
                error = failure
        for call in calls:
            if failed := error or call.error:
                call.future.set_exception(translate(failed))
            else:
                call.future.set_result(call.result)

    def _transact(self, calls: Sequence[_Call[Any]]) -> None:
        """Runs the calls and commits the transaction. Nothing is committed if this raises."""
        try:
            for call in calls:
                self._run_call(call)
            self._connection.execute_sql("COMMIT")
        except BaseException:
            if self._in_transaction():
                self._connection.execute_sql("ROLLBACK")
            raise

    def _run_call(self, call: _Call[Any]) -> None:
        """Runs the call in a savepoint. Raises if SQLite has rolled the whole transaction back."""
        call.result, call.error = None, None
        self._connection.execute_sql("SAVEPOINT call")
        try:
            call.result = call.function(Transaction(self._connection, int(self._clock())))
        except BaseException as error:
            if not self._in_transaction():
                raise
            self._connection.execute_sql("ROLLBACK TO call")
            call.error = error
        self._connection.execute_sql("RELEASE call")

    def _in_transaction(self) -> bool:
        return bool(self._connection.connection().in_transaction)
