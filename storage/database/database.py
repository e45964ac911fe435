"""Database: runs functions in transactions, on SQLite or PostgreSQL. SqliteWriter: the thread that writes to SQLite."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import peewee

from storage.database.call import Call
from storage.database.connection_pool import ConnectionPool
from storage.database.connections import (
    is_busy,
    open_postgresql,
    open_sqlite,
    open_sqlite_reader,
    sqlite_path,
    translate,
)
from storage.database.migrate import migrate
from storage.database.transaction import MODE, Mode, Statement, Transaction, lookup
from storage.errors import CommitUnknown, DatabaseBusy

P = ParamSpec("P")
R = TypeVar("R")

_CONNECTIONS = 8  # to PostgreSQL
_READERS = 4  # connections to SQLite that only read
_GROUP_SIZE = 64  # functions
_NOTIFY = Statement("SELECT pg_notify(:channel, message) FROM unnest(CAST(:messages AS TEXT[])) AS message")
RETRY_TIMEOUT = 1.0  # seconds that a transaction has at least


class Database:
    """A database whose schema is migrated when it is opened. Transactions run in its own threads.

    `url` is `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://…`; `clock` returns Unix time in
    seconds. With SQLite one thread writes and others read; with PostgreSQL all transactions share a pool. If a
    timeout is set, transactions fail that have not ended when the database has not responded for `timeout` seconds.
    """

    def __init__(self, url: str, *, timeout: float | None = None, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._writes: SqliteWriter | ConnectionPool
        self._look_ups: peewee.SqliteDatabase | None
        self._timeout = timeout
        self._clock = clock
        self._silent_since: float | None = None  # monotonic time of the first transaction since one has ended
        path = sqlite_path(url)
        if path is None:
            migrate(open_postgresql(url))
            connections = [open_postgresql(url) for _ in range(_CONNECTIONS)]
            self._writes = self._reads = ConnectionPool(connections, clock, timeout)
            self._look_ups = None
        else:
            connection = open_sqlite(path)
            migrate(connection)
            self._writes = SqliteWriter(connection, clock)
            self._reads = ConnectionPool([open_sqlite_reader(path) for _ in range(_READERS)], clock, timeout)
            self._look_ups = open_sqlite_reader(path, timeout=0)

    async def run(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function in a transaction, and rolls its changes back if it raises.

        What it needs is declared at the function, see `unsynced`, `reading`, `lookup` and `by_account`. One without a
        declaration may write, and its commit waits for the disk.

        The function runs a second time if its transaction is rolled back for a temporary reason: a lost connection, a
        deadlock, or the failure of another function that was to be committed together with it. Raises CommitUnknown
        if the connection is lost during the commit; DatabaseBusy if the database is locked, unreachable or does not
        respond in time; OSError (ENOSPC) if its disk is full. If the caller is cancelled, CancelledError is raised
        after the transaction has ended, or at once if it has not started, or if the caller is cancelled again.

        With SQLite, a function that has started is not interrupted by the timeout.
        """
        if self._look_ups is not None and getattr(function, MODE, None) is Mode.LOOKUP:
            try:
                return function(Transaction(self._look_ups, int(self._clock())), *args, **kwargs)
            except peewee.OperationalError as error:
                if not is_busy(error):
                    raise
        call = Call(function, args, kwargs)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        seconds = self._submit(call, lambda: loop.call_soon_threadsafe(ended.set))
        timer = None if seconds is None else loop.call_later(seconds, call.expire)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if not call.cancel():
                await ended.wait()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if not ended.is_set():  # cancelled again, which is the last chance
                call.expire()
        if call.future.cancelled():
            raise DatabaseBusy
        return call.future.result()

    async def listen(self, channel: str, receive: Callable[[str], None]) -> None:
        """Calls `receive` with each message that servers send to a channel, until cancelled.

        A lost connection is opened again; messages are lost meanwhile. SQLite has none.
        """
        if isinstance(self._writes, ConnectionPool):
            from storage.database.listener import listen  # noqa: PLC0415, only PostgreSQL needs its library

            await listen(self._url, channel, receive)

    async def notify(self, channel: str, messages: Sequence[str]) -> None:
        """Sends messages to all that listen to the channel, this database included. SQLite has none."""
        if messages and isinstance(self._writes, ConnectionPool):
            await self.run(_notify, channel, messages)

    def run_blocking(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like `run`, for callers without an event loop. Blocks."""
        call = Call(function, args, kwargs)
        ended = threading.Event()
        if not ended.wait(self._submit(call, ended.set)):
            call.expire()
            ended.wait()
        if call.future.cancelled():
            raise DatabaseBusy
        return call.future.result()

    def close(self) -> None:
        """Waits for submitted transactions and closes all connections. Blocks."""
        if self._reads is not self._writes:
            self._reads.close()
        if self._look_ups is not None:
            self._look_ups.close()
        self._writes.close()

    def _submit(self, call: Call[Any], on_end: Callable[[], object]) -> float | None:
        """Returns the seconds that a transaction has: the rest of the timeout since the database stopped responding."""

        def note_end(future: Future[Any]) -> None:
            if not (future.cancelled() or isinstance(future.exception(), DatabaseBusy | CommitUnknown)):
                self._silent_since = None
            on_end()

        now = time.monotonic()
        since = self._silent_since = now if self._silent_since is None else self._silent_since
        call.future.add_done_callback(note_end)
        (self._reads if call.mode in (Mode.READING, Mode.LOOKUP) else self._writes).submit(call)
        if self._timeout is None:
            return None
        # The steps and the cleanup of a request, and the requests that follow, must not each wait for as long.
        return max(since + self._timeout - now, min(self._timeout, RETRY_TIMEOUT))


@lookup
def _notify(transaction: Transaction, channel: str, messages: Sequence[str]) -> None:
    transaction.execute_statement(_NOTIFY, channel=channel, messages=messages)


class SqliteWriter:
    """Runs functions in groups of at most 64: one transaction, with a savepoint for each of several, one commit.

    A commit waits for the disk, unless that is needed for none of the group. SQLite has one writer at a time, so a
    commit per function would make each wait for the disk in turn. A function that raises is rolled back alone. `clock`
    returns Unix time in seconds.
    """

    def __init__(self, connection: peewee.SqliteDatabase, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._waiting: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._synced = True
        self._thread = threading.Thread(target=self._run_groups, name="database-writer", daemon=True)
        self._thread.start()

    def submit(self, call: Call[Any]) -> None:
        """Runs the call in the next group. Raises RuntimeError after `close`."""
        if not self._thread.is_alive():
            raise RuntimeError("The database is closed.")
        self._waiting.put(call)

    def close(self) -> None:
        """Waits for all submitted functions and closes the connection. Blocks."""
        self._waiting.put(None)
        self._thread.join()

    def _run_groups(self) -> None:
        while first := self._waiting.get():
            others = [self._waiting.get() for _ in range(min(self._waiting.qsize(), _GROUP_SIZE - 1))]
            self._run([first, *filter(None, others)])
            if None in others:
                break
        self._connection.close()

    def _run(self, group: Sequence[Call[Any]]) -> None:
        """Commits the calls together. If their transaction fails as a whole, each runs again, in one of its own."""
        error: BaseException | None = None
        try:
            self._set_synced(any(call.mode is Mode.SYNCED for call in group))
            self._connection.execute_sql("BEGIN IMMEDIATE")  # waits for the write lock
        except BaseException as failure:
            error = failure
        # Only now, because a call that has started cannot be cancelled while it waits for the lock.
        calls = [call for call in group if call.future.running() or call.future.set_running_or_notify_cancel()]
        outcomes: list[Callable[[], None]] = []
        if error is None:
            try:
                outcomes = self._transact(calls)
            except BaseException as failure:
                if len(calls) > 1:
                    for call in calls:
                        self._run([call])
                    return
                error = failure
        if error is not None:
            outcomes = [partial(call.fail, translate(error)) for call in calls]
        for deliver in outcomes:
            deliver()

    def _set_synced(self, synced: bool) -> None:
        if synced is not self._synced:
            # Without, a power cut can undo the latest commits. Those that remain are the first ones.
            self._connection.execute_sql(f"PRAGMA synchronous = {'full' if synced else 'normal'}")
            self._synced = synced

    def _transact(self, calls: Sequence[Call[Any]]) -> list[Callable[[], None]]:
        """Runs the calls and commits the transaction. Nothing is committed if this raises.

        Returns a function for each call that passes its result or error to its caller.
        """
        run = self._run_call if len(calls) > 1 else self._run_in_transaction
        try:
            outcomes = [run(call) for call in calls]
            self._connection.execute_sql("COMMIT")
        except BaseException:
            if self._in_transaction():
                self._connection.execute_sql("ROLLBACK")
            raise
        return outcomes

    def _run_call(self, call: Call[R]) -> Callable[[], None]:
        """Runs the call in a savepoint. Raises if SQLite has rolled the whole transaction back."""
        self._connection.execute_sql("SAVEPOINT call")
        try:
            outcome = self._run_in_transaction(call)
        except BaseException as error:
            if not self._in_transaction():
                raise
            self._connection.execute_sql("ROLLBACK TO call")
            outcome = partial(call.fail, translate(error))
        self._connection.execute_sql("RELEASE call")
        return outcome

    def _run_in_transaction(self, call: Call[R]) -> Callable[[], None]:
        return partial(call.finish, call.run(Transaction(self._connection, int(self._clock()))))

    def _in_transaction(self) -> bool:
        return bool(self._connection.connection().in_transaction)
