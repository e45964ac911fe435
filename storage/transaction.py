"""Transaction: what functions of this folder are given to work in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import peewee

from storage.prepared import Prepared

Row = TypeVar("Row", bound=peewee.Model)


@dataclass(frozen=True)
class Transaction:
    """One transaction, and the time at which it takes place (Unix time in whole seconds).

    It may be run a second time when its first run came to nothing, so functions do nothing outside of it.
    """

    connection: peewee.Database
    now: int

    def change(self, query: peewee.Update | peewee.Delete) -> int:
        """Updates or deletes; says how many rows that concerned."""
        return int(query.execute(self.connection))

    def change_returning(
        self, query: peewee.Update | peewee.Delete, *columns: peewee.Field[Any]
    ) -> list[tuple[Any, ...]]:
        """Updates or deletes; gives these columns of the rows that it concerned, as they are afterwards or were."""
        return list(query.returning(*columns).tuples().execute(self.connection))

    def add(self, query: peewee.Insert) -> None:
        """Inserts a row."""
        query.as_rowcount().execute(self.connection)

    def add_if_new(self, query: peewee.Insert) -> bool:
        """Inserts a row unless its key is taken; says whether it did."""
        return bool(query.on_conflict_ignore().as_rowcount().execute(self.connection))

    def first(self, query: peewee.ModelSelect[Row]) -> Row | None:
        """The first row, if there is one."""
        # Not get_or_none: where it finds nothing it writes the query down for no database, which fails for a lock.
        return next(iter(self.all(query.limit(1))), None)

    def locked(self, query: peewee.ModelSelect[Row]) -> Row | None:
        """The first row, which nobody else can change before this transaction ends."""
        # SQLite has one writer at a time, and every transaction here is a writer from its beginning.
        return self.first(query.for_update() if self.connection.for_update else query)

    def all(self, query: peewee.ModelSelect[Row]) -> list[Row]:
        """All rows."""
        return list(query.execute(self.connection))

    def tuples(self, query: peewee.ModelSelect[Row]) -> list[tuple[Any, ...]]:
        """All rows, as tuples of what was selected."""
        return list(query.tuples().execute(self.connection))

    def ask(self, query: Prepared, **values: Any) -> list[tuple[Any, ...]]:
        """All rows of a prepared query, with these values in its blanks."""
        return query.ask(self.connection, values)

    def change_each(self, query: Prepared, rows: Iterable[Mapping[str, Any]]) -> None:
        """Runs a prepared query that changes something, with the values of each row in its blanks in turn."""
        query.change_each(self.connection, rows)
