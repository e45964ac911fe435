"""ConnectionPool: runs functions in transactions, each of their own unless they are of one group, on a pool."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import peewee

from storage.database.call import Call
from storage.database.connections import limit_statements, sqlstate, translate
from storage.database.transaction import Mode, Transaction
from storage.errors import CommitUnknown, DatabaseBusy

log = logging.getLogger("convertd.database")

_ROLLED_BACK = ("40001", "40P01")  # SQLSTATEs of a serialization failure and a deadlock
_GROUP_SIZE = 16  # functions in a transaction, which keeps their locks from other servers


class ConnectionPool:
    """A thread for each connection. `clock` returns Unix time in seconds.

    Calls of a group wait while one of them runs, and then run in one transaction. Statements are limited to `timeout`
    seconds, or without one not at all. Peewee's own pool is not used: all its connections wait while one is opened.
    """

    def __init__(
        self, connections: Sequence[peewee.Database], clock: Callable[[], float], timeout: float | None
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._is_postgresql = isinstance(connections[0], peewee.PostgresqlDatabase)
        self._threads = ThreadPoolExecutor(len(connections), thread_name_prefix="database")
        # As many as threads. The latest one is used first, so that no more are opened than are used at once.
        self._connections = deque(connections)
        self._groups_changed = threading.Condition()
        self._groups: dict[str, deque[Call[Any]]] = {}  # calls that wait, of groups that a thread runs or will run

    def submit(self, call: Call[Any]) -> None:
        """Runs the call as soon as a thread is free."""
        if call.group is None:
            self._threads.submit(self._run, [call])
            return
        with self._groups_changed:
            is_new = call.group not in self._groups
            self._groups.setdefault(call.group, deque()).append(call)
        if is_new:
            self._threads.submit(self._run_group, call.group)

    def close(self) -> None:
        """Waits for all submitted functions and closes the connections. Blocks."""
        with self._groups_changed:
            self._groups_changed.wait_for(lambda: not self._groups)
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

    def _run_group(self, group: str) -> None:
        """Runs calls of the group that wait. More of them wait for a thread again, so that others have their turn."""
        waiting = self._groups[group]
        self._run([waiting.popleft() for _ in range(min(len(waiting), _GROUP_SIZE))])
        with self._groups_changed:
            if not waiting:
                del self._groups[group]
                self._groups_changed.notify_all()
                return
        self._threads.submit(self._run_group, group)

    def _run(self, calls: Sequence[Call[Any]]) -> None:
        """Commits the calls together. If their transaction fails as a whole, each runs again, in one of its own."""
        connection = self._connections.pop()
        error: BaseException | None = None
        try:
            for call, result in self._transact(calls, connection):
                call.finish(result)
        except BaseException as failure:
            error = failure
        finally:
            self._connections.append(connection)
        if error is None:
            return
        if len(calls) > 1 and not isinstance(error, CommitUnknown):
            for call in calls:
                self._run([call])
        else:
            for call in calls:
                call.fail(translate(error))

    def _transact(
        self, calls: Sequence[Call[Any]], connection: peewee.Database, *, retry: bool = True
    ) -> list[tuple[Call[Any], Any]]:
        """Runs the functions, and again if their transaction was rolled back for a temporary reason.

        Returns the results of the calls that were not cancelled.
        """
        if all(call.future.cancelled() or call.expired for call in calls):
            raise DatabaseBusy
        is_new = _connect(connection)
        committing = False
        try:
            descriptor = connection.connection().fileno() if self._is_postgresql else None
            with ExitStack() as stack:
                started = [call for call in calls if stack.enter_context(call.running(descriptor))]
                if not started:
                    raise DatabaseBusy
                if is_new:
                    limit_statements(connection, self._timeout or 0)
                with _transaction(connection, _mode_of(started) if self._is_postgresql else Mode.SYNCED):
                    transaction = Transaction(connection, int(self._clock()))
                    results = [(call, call.run(transaction)) for call in started]
                    committing = True
                return results
        except (peewee.DatabaseError, peewee.InterfaceError) as error:
            lost = not connection.is_connection_usable()
            if lost and committing:
                raise CommitUnknown from error
            if not lost and sqlstate(error) not in _ROLLED_BACK:
                raise
            if not retry or any(call.expired for call in calls):
                raise DatabaseBusy from error
        finally:
            if not connection.is_connection_usable():
                connection.close()
        return self._transact(calls, connection, retry=False)


def _mode_of(calls: Sequence[Call[Any]]) -> Mode:
    """The mode of a transaction of several calls: its commit waits for the disk if one of them needs that."""
    return next((call.mode for call in calls if call.mode is Mode.SYNCED), calls[0].mode)


@contextmanager
def _transaction(connection: peewee.Database, mode: Mode) -> Iterator[None]:
    """A transaction. Commits it, or rolls it back if the block raises."""
    if mode is Mode.LOOKUP:
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
        log.warning("database unreachable: %s", str(error).partition("\n")[0], extra={"outage": True})
        raise DatabaseBusy from error
