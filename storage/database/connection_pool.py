"""ConnectionPool: runs functions in transactions of their own, each on a connection of a pool."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import peewee
from playhouse.pool import PooledPostgresqlDatabase, PooledSqliteDatabase

from storage.database.connections import translate
from storage.database.transaction import Transaction
from storage.errors import CommitUnknown, DatabaseBusy

if TYPE_CHECKING:
    import psycopg

R = TypeVar("R")

log = logging.getLogger("convertd.database")

_READ_ONLY = "REPEATABLE READ READ ONLY"  # a consistent snapshot, as SQLite has in any transaction
_ROLLED_BACK = ("40001", "40P01")  # SQLSTATEs of a serialization failure and a deadlock


MAX_SECONDS = 15.0  # a transaction on a server that is stopped or cut off would block for minutes


class ConnectionPool:
    """Threads that run functions, at most `size` at a time. `clock` returns Unix time in seconds."""

    def __init__(
        self, connections: PooledPostgresqlDatabase | PooledSqliteDatabase, size: int, clock: Callable[[], float]
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._read_only = None if isinstance(connections, PooledSqliteDatabase) else _READ_ONLY
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="database")
        self._watchdog = None if isinstance(connections, PooledSqliteDatabase) else _Watchdog(MAX_SECONDS)

    def submit(self, function: Callable[[Transaction], R], *, read_only: bool = False) -> Future[R]:
        """Runs the function as soon as a thread is free."""
        return self._threads.submit(self._run, function, self._read_only if read_only else None)

    def close(self) -> None:
        """Waits for all submitted functions and closes the connections. Blocks."""
        self._threads.shutdown()
        if self._watchdog is not None:
            self._watchdog.close()
        self._connections.close_all()

    def _run(self, function: Callable[[Transaction], R], mode: str | None) -> R:
        try:
            return self._transact(function, mode)
        except BaseException as error:
            translated = translate(error)
            raise translated from translated.__cause__

    def _transact(self, function: Callable[[Transaction], R], mode: str | None, *, retry: bool = True) -> R:
        with self._connected():
            committing = False
            try:
                with self._connections.atomic(mode):
                    result = function(Transaction(self._connections, int(self._clock())))
                    committing = True
                return result
            except (peewee.OperationalError, peewee.InterfaceError) as error:
                if translate(error) is not error or not self._can_retry(error, committing):
                    raise
                if not retry:
                    raise DatabaseBusy from error
        return self._transact(function, mode, retry=False)

    def _can_retry(self, error: peewee.PeeweeException, committing: bool) -> bool:
        """Whether the transaction was rolled back for a temporary reason. Raises CommitUnknown if that is uncertain."""
        if self._connections.is_connection_usable():
            return getattr(getattr(error, "orig", None), "sqlstate", None) in _ROLLED_BACK
        if committing:
            raise CommitUnknown from error
        return True

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            self._connections.connect(reuse_if_open=True)
        except peewee.OperationalError as error:
            log.warning("database unreachable: %s", str(error).partition("\n")[0])
            raise DatabaseBusy from error
        try:
            with self._watchdog.watch(self._connections.connection()) if self._watchdog else nullcontext():
                yield
        finally:
            self._connections.close()  # returns the connection to the pool


class _Watchdog:
    """Cuts connections off from the server that are in use for more than `max_seconds`.

    Their transactions then fail as if the connection were lost.
    """

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self._deadlines: dict[int, float] = {}  # by descriptor of a connection in use, in monotonic time
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="database-watchdog", daemon=True).start()

    @contextmanager
    def watch(self, connection: psycopg.Connection) -> Iterator[None]:
        """Watches a connection during the block."""
        descriptor = connection.fileno()
        self._deadlines[descriptor] = monotonic() + self._max_seconds
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[descriptor]

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._max_seconds / 10):
            with self._lock:
                late = [descriptor for descriptor, deadline in list(self._deadlines.items()) if deadline < monotonic()]
                for descriptor in late:
                    log.warning("a transaction takes longer than %g s; closing its connection", self._max_seconds)
                    with socket.socket(fileno=os.dup(descriptor)) as connection, suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                    self._deadlines[descriptor] = inf
