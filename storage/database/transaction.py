"""Transaction: the database access that the functions of this package receive, and what they declare about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeVar

import peewee

R = TypeVar("R")
Row = TypeVar("Row", bound=peewee.Model)
Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])

MODE = "transaction_mode"
"""The attribute of a function with its declared mode."""

BY_ACCOUNT = "transaction_by_account"
"""The attribute that functions have that are declared with `by_account`."""

LOCKED_ROWS = " FOR UPDATE SKIP LOCKED"
"""Locks the selected rows, without those that another transaction has locked."""


LOCKED_ROW = " FOR NO KEY UPDATE"
"""Waits for the selected row, and locks it. In a subquery of a condition, before the rows that fulfil the condition."""


class Mode(Enum):
    """What a transaction may do, and what its commit waits for. The value begins it on PostgreSQL."""

    SYNCED = "BEGIN"
    UNSYNCED = "BEGIN; SET LOCAL synchronous_commit = off"  # its commit does not wait for the disk
    READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # a snapshot, as SQLite has in any transaction
    LOOKUP = ""  # a single statement commits by itself


def unsynced(function: Function) -> Function:
    """Declares that the commit of a function need not wait for the disk: if the machine fails soon, it may be undone.

    It is on the disk when a later synced transaction has been committed, if it is not lost by then.
    """
    return _declare(function, MODE, Mode.UNSYNCED)


def reading(function: Function) -> Function:
    """Declares that a function only reads. It runs on a consistent snapshot.

    With SQLite, the function neither waits for writers nor delays them.
    """
    return _declare(function, MODE, Mode.READING)


def lookup(function: Function) -> Function:
    """Declares that a function only reads a few rows by an index, with one statement.

    With SQLite it runs in the thread of its caller, unless the database is locked: passing it to another takes longer.
    """
    return _declare(function, MODE, Mode.LOOKUP)


def by_account(function: Function) -> Function:
    """Declares that calls of a function that wait for the same account, its first argument, share a transaction.

    A call for None runs in a transaction of its own. With PostgreSQL, one would hold the locks of the account's rows
    until its commit is on the disk, while others wait for them on connections that are needed for other accounts. So
    those that wait are committed together, as all are with SQLite. If one of them raises, all are rolled back, and
    each runs again in a transaction of its own.

    A function must first lock a row that all have, such as the row of the account, and then none that other
    transactions may lock before it: several functions in one transaction could end in a deadlock.
    """
    return _declare(function, BY_ACCOUNT, True)


def _declare(function: Function, name: str, value: object) -> Function:
    setattr(function, name, value)
    return function


class Statement:
    """An SQL statement with parameters written as `:name`.

    Statements that run on every request are written as text, because rendering a query with Peewee takes about fifty
    times as long as running it in SQLite. SQLite has one writer at a time, and locks no rows.
    """

    def __init__(self, sql: str) -> None:
        self.text = sql
        self.returns_rows = sql.startswith(("SELECT ", "WITH ")) or " RETURNING " in sql
        self.sqlite = sql.replace(LOCKED_ROWS, "").replace(LOCKED_ROW, "")
        self.postgresql = re.sub(r":(\w+)", r"%(\1)s", sql)


class Statements:
    """Statements that run together. Those after the first run only if it returns a row; they have `WHERE TRUE`.

    On PostgreSQL they are one statement, which takes one round trip. Equal parameters have equal values in all.
    """

    def __init__(self, first: Statement, *others: Statement) -> None:
        self.parts = (first, *others)
        texts = [first.text, *(one.text.replace("WHERE TRUE", "WHERE EXISTS (SELECT 1 FROM s0)") for one in others)]
        named = ", ".join(f"s{number} AS ({text})" for number, text in enumerate(texts))
        returned = ", ".join(f"s{number}" for number, one in enumerate(self.parts) if one.returns_rows)
        self.joined = Statement(f"WITH {named} SELECT * FROM {returned}")


def insert(table: str, columns: str, *, suffix: str = "") -> Statement:
    """Builds a statement that inserts a row, with a parameter for each of its columns, separated by commas."""
    values = ", ".join(f":{name}" for name in columns.split(", "))
    return Statement(f"INSERT INTO {table} ({columns}) SELECT {values} WHERE TRUE{suffix}")


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
        is_sqlite = isinstance(self.connection, peewee.SqliteDatabase)
        cursor = self.connection.execute_sql(statement.sqlite if is_sqlite else statement.postgresql, values)
        return list(cursor.fetchall()) if statement.returns_rows else []

    def execute_all(self, statements: Statements, **values: Any) -> tuple[Any, ...] | None:
        """Runs statements with these parameters. Returns the rows that they return as one; None if the first has none.

        Each returns one row at most.
        """
        if not isinstance(self.connection, peewee.SqliteDatabase):
            return next(iter(self.execute_statement(statements.joined, **values)), None)
        first, *others = statements.parts
        rows = self.execute_statement(first, **values)
        if not rows:
            return None
        for statement in others:
            rows += self.execute_statement(statement, **values)
        return tuple(value for row in rows for value in row)

    def execute_many(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        """Runs an SQL statement once for each mapping of parameters."""
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]  # as Peewee does for all its own calls
            is_sqlite = isinstance(self.connection, peewee.SqliteDatabase)
            self.connection.cursor().executemany(statement.sqlite if is_sqlite else statement.postgresql, list(rows))

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

    def dicts(self, query: peewee.ModelSelect[Any]) -> list[dict[str, Any]]:
        """Returns all rows as dictionaries."""
        return list(query.dicts().execute(self.connection))

    def values(self, kind: Callable[..., Value], query: peewee.ModelSelect[Any]) -> tuple[Value, ...]:
        """Returns all rows as instances of a dataclass, or what a function makes of the columns.

        The query selects the fields of the dataclass, see `columns`.
        """
        return tuple(kind(*row) for row in self.rows(query))


def columns(table: type[peewee.Model], kind: type[Any], **computed: peewee.ColumnBase) -> list[Any]:
    """The columns that hold the fields of a dataclass, in the order of the fields, or expressions for those fields."""
    return [computed.get(field.name) or getattr(table, field.name) for field in fields(kind)]
