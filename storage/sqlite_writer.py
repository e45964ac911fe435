"""SqliteWriter: the one thread that writes to an SQLite database. It commits together what waits together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import peewee

from storage.calls import Call, finish
from storage.connections import is_busy, translate
from storage.transaction import Transaction

_GROUP_SIZE = 64

Outcome = tuple[Call[Any], Any, BaseException | None]
"""A call, its result and its error."""


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
            if calls := [call for call in group if call.start()]:
                self._run_group(calls)

    def _next_group(self) -> list[Call[Any]]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _GROUP_SIZE))]
            self._running = bool(group)
            return group

    def _run_group(self, calls: Sequence[Call[Any]]) -> None:
        """Commits the calls together. If their transaction fails as a whole, each runs again, in one of its own."""
        try:
            outcomes = self._transact(calls)
        except BaseException as error:
            if len(calls) > 1 and not is_busy(error):
                for call in calls:
                    self._run_group([call])
            else:
                finish([(call, None, translate(error)) for call in calls])
        else:
            finish(outcomes)

    def _transact(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Runs the calls in one transaction. Nothing is committed if this raises."""
        self._connection.execute_sql("BEGIN IMMEDIATE")
        try:
            outcomes = [self._run_call(call) for call in calls]
            self._connection.execute_sql("COMMIT")
        except BaseException:
            if self._in_transaction():
                self._connection.execute_sql("ROLLBACK")
            raise
        return outcomes

    def _run_call(self, call: Call[Any]) -> Outcome:
        """Runs the call in a savepoint. Raises if SQLite has rolled the whole transaction back."""
        self._connection.execute_sql("SAVEPOINT call")
        try:
            outcome: Outcome = (call, call.function(Transaction(self._connection, int(self._clock()))), None)
        except BaseException as error:
            if not self._in_transaction():
                raise
            self._connection.execute_sql("ROLLBACK TO call")
            outcome = (call, None, translate(error))
        self._connection.execute_sql("RELEASE call")
        return outcome

    def _in_transaction(self) -> bool:
        return bool(self._connection.connection().in_transaction)
