"""The latest requests of every account, for its owner to look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from peewee import BaseQuery

from storage import models
from storage.prepared import Given, Prepared
from storage.transaction import Transaction

KEPT = 200  # of an account


@dataclass(frozen=True)
class LoggedRequest:
    """A request that was answered. `code` is that of an error; neither query nor file names are kept."""

    id: str
    account: str
    method: str
    path: str
    status: int
    code: str | None
    milliseconds: int
    at_milliseconds: int  # Unix time


def record(transaction: Transaction, requests: Iterable[LoggedRequest]) -> None:
    """Notes requests, and forgets what is older than the latest KEPT of their accounts."""
    noted = tuple(requests)
    transaction.change_each(_NOTE, map(vars, noted))
    for account in sorted({request.account for request in noted}):
        transaction.ask(_FORGET, account=account)


def _noting(given: Given) -> BaseQuery:
    table = models.Request
    row = {field.name: given(field.name) for field in fields(LoggedRequest)}
    return table.insert(row).on_conflict_ignore().as_rowcount()


_NOTE = Prepared(_noting)


def latest(transaction: Transaction, account: str) -> tuple[LoggedRequest, ...]:
    """The requests that are kept, the latest first."""
    table = models.Request
    columns = [getattr(table, name) for name in LoggedRequest.__dataclass_fields__]
    query = table.select(*columns).where(table.account == account)
    rows = transaction.tuples(query.order_by(table.at_milliseconds.desc(), table.id.desc()).limit(KEPT))
    return tuple(LoggedRequest(*row) for row in rows)


def _forgetting(given: Given) -> BaseQuery:
    table = models.Request
    mine = table.select(table.id).where(table.account == given("account"))
    older = mine.order_by(table.at_milliseconds.desc(), table.id.desc()).offset(KEPT).limit(KEPT * 50)
    return table.delete().where(table.id.in_(older))


_FORGET = Prepared(_forgetting)
