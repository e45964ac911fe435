"""Transaction: the database access that the functions of this package receive. Call: a function that waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import peewee

R = TypeVar("R")
Row = TypeVar("Row", bound=peewee.Model)


@dataclass(frozen=True)
class Statement:
    """One SQL statement with named parameters, in the syntax of each database."""

    sqlite: str
    postgresql: str

    def sql(self, database: peewee.Database) -> str:
        """Returns the text for this kind of database."""
        return self.sqlite if isinstance(database, peewee.SqliteDatabase) else self.postgresql


@dataclass(frozen=True)
class Transaction:
    """A database transaction and its time (`now`, Unix time in whole seconds).

    A transaction that was rolled back may run a second time, so functions must have no other side effects.
    """

    connection: peewee.Database
    now: int

    def execute(self, query: peewee.Update | peewee.Delete) -> int:
        """Runs an UPDATE or DELETE. Returns the number of rows affected."""
        return int(query.execute(self.connection))

    def execute_returning(
        self, query: peewee.Update | peewee.Delete, *columns: peewee.Field[Any]
    ) -> list[tuple[Any, ...]]:
        """Runs an UPDATE or DELETE. Returns these columns of each affected row: new values, or deleted ones."""
        return list(query.returning(*columns).tuples().execute(self.connection))

    def execute_statement(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        """Runs an SQL statement with these parameters. Returns its rows, if any."""
        cursor = self.connection.execute_sql(statement.sql(self.connection), values)
        return list(cursor.fetchall()) if cursor.description else []

    def execute_many(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        """Runs an SQL statement once for each mapping of parameters."""
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]  # as Peewee does for all its own calls
            self.connection.cursor().executemany(statement.sql(self.connection), list(rows))

    def insert(self, query: peewee.Insert) -> None:
        """Inserts a row."""
        query.as_rowcount().execute(self.connection)

    def insert_ignore(self, query: peewee.Insert) -> bool:
        """Inserts a row unless it violates a unique key. Returns whether it was inserted."""
        return bool(query.on_conflict_ignore().as_rowcount().execute(self.connection))

    def first(self, query: peewee.ModelSelect[Row]) -> Row | None:
        """Returns the first row, or None."""
        # Not get_or_none: without a match it renders the query for no database, which fails for SELECT FOR UPDATE.
        return next(iter(self.all(query.limit(1))), None)

    def select_for_update(self, query: peewee.ModelSelect[Row]) -> Row | None:
        """Returns the first row, or None, and locks it until the transaction ends."""
        # SQLite has one writer at a time, and each transaction holds the write lock from its start.
        return self.first(query.for_update() if self.connection.for_update else query)

    def all(self, query: peewee.ModelSelect[Row]) -> list[Row]:
        """Returns all rows as model instances."""
        return list(query.execute(self.connection))

    def rows(self, query: peewee.ModelSelect[Row]) -> list[tuple[Any, ...]]:
        """Returns all rows as tuples of the selected columns."""
        return list(query.tuples().execute(self.connection))


class Call(Generic[R]):
    """A function to run in a transaction, in another thread. It has either not started or runs to its end.

    Created in the event loop that awaits `wait`; a caller without an event loop reads `future`.
    """

    def __init__(self, function: Callable[[Transaction], R], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.function = function
        self.future: Future[R] = Future()
        self.loop = loop
        self._waiter: asyncio.Future[R] | None = loop.create_future() if loop else None

    def start(self) -> bool:
        """Whether the call is to run; False if it has been cancelled."""
        return self.future.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Cancels the call unless it has started. Returns whether it is cancelled."""
        cancelled = self.future.cancel()
        if cancelled and self._waiter is not None:
            self._waiter.cancel()
        return cancelled

    async def wait(self) -> R:
        """Returns the result. If the caller is cancelled, CancelledError is raised once the call has ended."""
        assert self._waiter is not None
        try:
            return await self._waiter
        except asyncio.CancelledError:
            if not self.cancel():
                await asyncio.gather(asyncio.wrap_future(self.future), return_exceptions=True)
            raise

    def wake(self) -> None:
        """Passes the result to `wait`. Runs in the event loop."""
        if self._waiter is None or self._waiter.done():
            return
        error = self.future.exception()
        if error is None:
            self._waiter.set_result(self.future.result())
        else:
            self._waiter.set_exception(error)


def finish(outcomes: Iterable[tuple[Call[Any], Any, BaseException | None]]) -> None:
    """Sets the result, or the error, of each call, and wakes up each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = {}
    for call, result, error in outcomes:
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(error)
        if call.loop is not None:
            loops.setdefault(call.loop, []).append(call)
    for loop, calls in loops.items():
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_wake, loop, calls)


def _wake(loop: asyncio.AbstractEventLoop, calls: Iterable[Call[Any]]) -> None:
    for call in calls:
        loop.call_soon(call.wake)  # in callbacks of their own, so that an error in one affects no other
