"""Prepared queries: what is asked with every request is written as SQL only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        kind = type(connection)
        if kind not in self._written:
            self._written[kind] = connection.get_sql_context().sql(self._build(_blank)).query()
        text, parameters = self._written[kind]
        filled = [values[value.name] if isinstance(value, _Blank) else value for value in parameters]
        answer = connection.execute_sql(text, filled)
        return list(answer.fetchall()) if answer.description else []


def insertion(table: type[peewee.Model]) -> Prepared:
    """A query that adds a row, with a blank for each of the table's columns."""
    columns = table._meta.sorted_fields
    return Prepared(lambda given: table.insert({column: given(column.name) for column in columns}))


def _blank(name: str) -> peewee.Value:
    return peewee.Value(_Blank(name), converter=False)
