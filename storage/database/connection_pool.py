"""ConnectionPool: runs functions in transactions of their own, each on a connection of a pool."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import LifoQueue
from typing import TypeVar

import peewee

from storage.database.call import Call
from storage.database.connections import limit_statements, sqlstate, translate
from storage.database.transaction import Transaction
from storage.errors import CommitUnknown, DatabaseBusy

R = TypeVar("R")

log = logging.getLogger("convertd.database")

_READ_ONLY = "REPEATABLE READ READ ONLY"  # a consistent snapshot, as SQLite has in any transaction
_ROLLED_BACK = ("40001", "40P01")  # SQLSTATEs of a serialization failure and a deadlock


class ConnectionPool:
    """A thread for each connection. `clock` returns Unix time in seconds.

    Statements are limited to `timeout` seconds, or without one not at all. Peewee's own pool is not used: all its
    connections wait while one is opened.
    """

    def __init__(
        self, connections: Sequence[peewee.Database], clock: Callable[[], float], timeout: float | None
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._is_postgresql = isinstance(connections[0], peewee.PostgresqlDatabase)
        self._threads = ThreadPoolExecutor(len(connections), thread_name_prefix="database")
        self._connections: LifoQueue[peewee.Database] = LifoQueue()  # no more are opened than are used at once
        for connection in connections:
            self._connections.put(connection)

    def submit(self, function: Callable[[Transaction], R], *, read_only: bool = False) -> Call[R]:
        """Runs the function as soon as a thread is free."""
        call = Call(function)
        self._threads.submit(self._run, call, _READ_ONLY if read_only and self._is_postgresql else None)
        return call

    def close(self) -> None:
        """Waits for all submitted functions and closes the connections. Blocks."""
        self._threads.shutdown()
        while not self._connections.empty():
            self._connections.get().close()

    def _run(self, call: Call[R], mode: str | None) -> None:
        connection = self._connections.get()
        try:
            outcome = self._transact(call, connection, mode)
        except BaseException as error:
            call.fail(translate(error))
        else:
            call.finish(outcome)
        finally:
            self._connections.put(connection)

    def _transact(self, call: Call[R], connection: peewee.Database, mode: str | None, *, retry: bool = True) -> R:
        """Runs the function, and again if its transaction was rolled back for a temporary reason."""
        if call.future.cancelled():
            raise DatabaseBusy
        is_new = _connect(connection)
        committing = False
        try:
            descriptor = connection.connection().fileno() if self._is_postgresql else None
            with call.running(descriptor) as running:
                if not running:
                    raise DatabaseBusy
                if is_new:
                    limit_statements(connection, self._timeout or 0)
                with connection.atomic(mode):
                    result = call.function(Transaction(connection, int(self._clock())))
                    committing = True
                return result
        except (peewee.DatabaseError, peewee.InterfaceError) as error:
            lost = not connection.is_connection_usable()
            if lost and committing:
                raise CommitUnknown from error
            if not lost and sqlstate(error) not in _ROLLED_BACK:
                raise
            if not retry or call.expired:
                raise DatabaseBusy from error
        finally:
            if not connection.is_connection_usable():
                connection.close()
        return self._transact(call, connection, mode, retry=False)


def _connect(connection: peewee.Database) -> bool:
    """Opens the connection unless it is open. Returns whether it was opened. Raises DatabaseBusy."""
    try:
        return bool(connection.connect(reuse_if_open=True))
    except peewee.OperationalError as error:
        log.warning("database unreachable: %s", str(error).partition("\n")[0])
        raise DatabaseBusy from error
