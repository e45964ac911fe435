"""Pages of lists of rows, newest first. A cursor is where the next page begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import peewee

from storage.database.transaction import Transaction

Value = TypeVar("Value")

CURSOR = r"[0-9]{1,19}-[0-9A-Za-z_]{1,60}"
"""The form of a cursor, as a regular expression: the time and the id of a row."""

_MAX_INTEGER = (1 << 63) - 1  # The limit of both databases.


@dataclass(frozen=True)
class Page(Generic[Value]):
    """Some rows of a list. `next_cursor` is the cursor of the next page, None if there is none."""

    values: tuple[Value, ...]
    next_cursor: str | None


def read_page(
    transaction: Transaction,
    kind: Callable[..., Value],
    query: peewee.ModelSelect[Any],
    *order: peewee.Field[Any],
    limit: int,
    cursor: str | None,
) -> Page[Value]:
    """Returns at most `limit` rows, newest first: the first ones, or those after `cursor`. See `Transaction.values`.

    The query selects the fields of the dataclass, see `columns`. `order` is the column of the time at which rows were
    added, as an integer, and of their ids. With an index of both, a page at the end of a long list is read as fast as
    the first one. Raises ValueError if the cursor does not match CURSOR.
    """
    if cursor is not None:
        if not re.fullmatch(CURSOR, cursor):
            raise ValueError("This is not a cursor.")
        added_at, _, row_id = cursor.partition("-")
        query = query.where(peewee.Tuple(*order) < peewee.Tuple(min(int(added_at), _MAX_INTEGER), row_id))
    found = transaction.values(kind, query.order_by(*(field.desc() for field in order)).limit(limit + 1))
    if len(found) <= limit:
        return Page(found, None)
    last = found[limit - 1]
    return Page(found[:limit], "-".join(str(getattr(last, field.name)) for field in order))
