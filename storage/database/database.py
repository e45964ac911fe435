"""Database: runs functions in transactions, on SQLite or PostgreSQL. SqliteWriter: the thread that writes to SQLite."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

import peewee

from storage.database.connection_pool import ConnectionPool
from storage.database.connections import (
    TIMEOUT,
    is_busy,
    open_postgresql,
    open_sqlite,
    open_sqlite_readers,
    sqlite_path,
    translate,
)
from storage.database.migrate import migrate
from storage.database.transaction import Call, Transaction, finish
from storage.errors import DatabaseBusy

P = ParamSpec("P")
R = TypeVar("R")

_CONNECTIONS = 8  # to PostgreSQL
_READERS = 4  # connections to SQLite that only read
_RETRY_INTERVAL = 0.05  # seconds
_GROUP_SIZE = 64  # calls

_Outcome = tuple[Call[Any], Any, BaseException | None]
"""A call, its result and its error."""


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

    def read_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `read`, for callers without an event loop, and without a timeout. Blocks."""
        call = Call(lambda transaction: function(transaction, *args, **kwargs))
        self._reads.submit(call, read_only=True)
        return call.future.result()

    def close(self) -> None:
        """Waits for submitted transactions and closes all connections. Blocks."""
        if self._reads is not self._writes:
            self._reads.close()
        self._writes.close()


class SqliteWriter:
    """Runs calls in groups of at most 64: one transaction with one savepoint per call, one commit.

    A commit waits for the disk, and SQLite has one writer at a time, so a commit per call would make each call wait for
    the disk in turn. A call that raises is rolled back alone. `clock` returns Unix time in seconds.
    """

    def __init__(self, connection: peewee.SqliteDatabase, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database-writer")
        self._lock = threading.Lock()
        self._waiting: deque[Call[Any]] = deque()
        self._running = False  # whether the thread will take what waits

    def submit(self, call: Call[Any]) -> None:
        """Runs the call in the next group."""
        with self._lock:
            self._waiting.append(call)
            if not self._running:
                self._thread.submit(self._run_groups)
                self._running = True

    def close(self) -> None:
        """Waits for all submitted calls and closes the connection. Blocks."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _run_groups(self) -> None:
        while group := self._next_group():
            error = self._begin()
            # Only now, because a call that has started cannot be cancelled while it waits for the lock.
            calls = [call for call in group if call.start()]
            if error is None:
                self._run_group(calls)
            else:
                finish([(call, None, translate(error)) for call in calls])

    def _next_group(self) -> list[Call[Any]]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _GROUP_SIZE))]
            self._running = bool(group)
            return group

    def _begin(self) -> BaseException | None:
        """Begins a transaction, which waits for the write lock. Returns the error if it fails."""
        try:
            self._connection.execute_sql("BEGIN IMMEDIATE")
        except BaseException as error:
            return error
        return None

    def _run_group(self, calls: Sequence[Call[Any]]) -> None:
        """Commits the calls together. If their transaction fails as a whole, each runs again, in one of its own."""
        try:
            outcomes = self._transact(calls)
        except BaseException as error:
            if len(calls) > 1:
                for call in calls:
                    self._run_alone(call)
            else:
                finish([(call, None, translate(error)) for call in calls])
        else:
            finish(outcomes)

    def _run_alone(self, call: Call[Any]) -> None:
        error = self._begin()
        if error is None:
            self._run_group([call])
        else:
            finish([(call, None, translate(error))])

    def _transact(self, calls: Sequence[Call[Any]]) -> list[_Outcome]:
        """Runs the calls and commits the transaction. Nothing is committed if this raises."""
        try:
            outcomes = [self._run_call(call) for call in calls]
            self._connection.execute_sql("COMMIT")
        except BaseException:
            if self._in_transaction():
                self._connection.execute_sql("ROLLBACK")
            raise
        return outcomes

    def _run_call(self, call: Call[Any]) -> _Outcome:
        """Runs the call in a savepoint. Raises if SQLite has rolled the whole transaction back."""
        self._connection.execute_sql("SAVEPOINT call")
        try:
            outcome: _Outcome = (call, call.function(Transaction(self._connection, int(self._clock()))), None)
        except BaseException as error:
            if not self._in_transaction():
                raise
            self._connection.execute_sql("ROLLBACK TO call")
            outcome = (call, None, translate(error))
        self._connection.execute_sql("RELEASE call")
        return outcome

    def _in_transaction(self) -> bool:
        return bool(self._connection.connection().in_transaction)


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
