"""Prepared queries: what is asked with every request is written as SQL only once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import peewee

Given: TypeAlias = Callable[[str], peewee.Value]
"""Makes what stands in a query for a value that is given, by this name, whenever it is asked."""


@dataclass(frozen=True)
class _Blank:
    name: str


class Prepared:
    """A query with blanks, as `build` makes it.

    Peewee takes fifty times as long to write a query as SQLite to answer one by a key.
    """

    def __init__(self, build: Callable[[Given], peewee.BaseQuery]) -> None:
        self._build = build
        self._written: dict[type[peewee.Database], tuple[str, list[Any]]] = {}

    def ask(self, connection: peewee.Database, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The rows, if it has any, with these values in the blanks."""
        text, parameters = self._sql(connection)
        answer = connection.execute_sql(text, _filled(parameters, values))
        return list(answer.fetchall()) if answer.description else []

    def change_each(self, connection: peewee.Database, rows: Iterable[Mapping[str, Any]]) -> None:
        """Changes something, with the values of each row in the blanks in turn."""
        text, parameters = self._sql(connection)
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]  # as around all that Peewee itself runs
            connection.cursor().executemany(text, [_filled(parameters, row) for row in rows])

    def _sql(self, connection: peewee.Database) -> tuple[str, list[Any]]:
        kind = type(connection)
        if kind not in self._written:
            self._written[kind] = connection.get_sql_context().sql(self._build(_blank)).query()
        return self._written[kind]


def _filled(parameters: list[Any], values: Mapping[str, Any]) -> list[Any]:
    return [values[value.name] if isinstance(value, _Blank) else value for value in parameters]


def insertion(table: type[peewee.Model]) -> Prepared:
    """A query that adds a row, with a blank for each of the table's columns."""
    columns = table._meta.sorted_fields
    return Prepared(lambda given: table.insert({column: given(column.name) for column in columns}))


def _blank(name: str) -> peewee.Value:
    return peewee.Value(_Blank(name), converter=False)
