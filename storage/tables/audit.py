"""The audit log: what administrators and operators did to accounts, in the transaction that did it."""

import json
import time
from dataclasses import dataclass

from storage.database.pages import Page, read_page
from storage.database.transaction import Transaction, columns, reading
from storage.ids import random_text
from storage.tables import models

OPERATOR = "command line"
"""The actor of commands, which run next to the server."""


@dataclass(frozen=True)
class Action:
    """An action. `actor` and `subject` are ids of accounts, or other names; `details` is a JSON object."""

    id: str
    at: int
    actor: str
    action: str
    subject: str
    details: str


def record(transaction: Transaction, /, actor: str, action: str, subject: str, **details: object) -> None:
    """Adds an action. Details with the value None are left out; secrets do not belong into them."""
    given = {name: value for name, value in details.items() if value is not None}
    order = f"audit_{time.time_ns()}_{random_text(6)}"  # among the actions of a second
    row = Action(order, transaction.now, actor, action, subject, json.dumps(given))
    transaction.insert(models.Audit.insert(**vars(row)))


@reading
def list_page(transaction: Transaction, *, limit: int, cursor: str | None = None) -> Page[Action]:
    """Returns actions, newest first. Raises ValueError for a wrong cursor."""
    table = models.Audit
    query = table.select(*columns(table, Action))
    return read_page(transaction, Action, query, table.at, table.id, limit=limit, cursor=cursor)
