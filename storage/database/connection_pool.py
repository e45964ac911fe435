"""ConnectionPool: runs functions in transactions of their own, each on a connection of a pool."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import LifoQueue
from typing import Any, TypeVar

import peewee

from storage.database.call import Call, Mode
from storage.database.connections import limit_statements, sqlstate, translate
from storage.database.transaction import Transaction
from storage.errors import CommitUnknown, DatabaseBusy

R = TypeVar("R")

log = logging.getLogger("convertd.database")

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

    def submit(self, call: Call[Any]) -> None:
        """Runs the call as soon as a thread is free."""
        self._threads.submit(self._run, call)

    def close(self) -> None:
        """Waits for all submitted functions and closes the connections. Blocks."""
        self._threads.shutdown()
        while not self._connections.empty():
            self._connections.get().close()

    def _run(self, call: Call[Any]) -> None:
        connection = self._connections.get()
        try:
            outcome = self._transact(call, connection)
        except BaseException as error:
            call.fail(translate(error))
        else:
            call.finish(outcome)
        finally:
            self._connections.put(connection)

    def _transact(self, call: Call[R], connection: peewee.Database, *, retry: bool = True) -> R:
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
                with _transaction(connection, call.mode if self._is_postgresql else Mode.DURABLE):
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
        return self._transact(call, connection, retry=False)


@contextmanager
def _transaction(connection: peewee.Database, mode: Mode) -> Iterator[None]:
    """A transaction. Commits it, or rolls it back if the block raises."""
    if mode is Mode.STATEMENT:
        yield
        return
    connection.execute_sql(mode.value)
    try:
        yield
        connection.execute_sql("COMMIT")
    except BaseException:
        with suppress(peewee.DatabaseError, peewee.InterfaceError):  # the connection is lost
            connection.execute_sql("ROLLBACK")
        raise


def _connect(connection: peewee.Database) -> bool:
    """Opens the connection unless it is open. Returns whether it was opened. Raises DatabaseBusy."""
    try:
        return bool(connection.connect(reuse_if_open=True))
    except peewee.OperationalError as error:
        log.warning("database unreachable: %s", str(error).partition("\n")[0])
        raise DatabaseBusy from error
