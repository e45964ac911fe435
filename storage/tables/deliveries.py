"""Deliveries: messages about events that are to be delivered to webhooks, and the attempts to do so.

A message is inserted in the transaction of its event. `storage.tables.receivers` passes it to a sender.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from peewee import JOIN
from pydantic import Field

from storage.database.pages import Page, read_page
from storage.database.transaction import Statement, Transaction, columns, insert, reading
from storage.errors import NotFound, WebhookDisabled
from storage.field_types import DeliveryId, Timestamp
from storage.ids import is_id, new_id
from storage.tables import webhooks
from storage.tables.webhook_models import Delivery, DeliveryAttempt
from storage.tables.webhooks import Event

MessageType: TypeAlias = Event | Literal["test"]

_ERASED = ("result", "error", "tag", "webhook_url")
"""The fields that are null in messages about a deleted job: receivers may require that a job has all fields."""

RETENTION = 604_800  # seconds for which deliveries are kept: 7 days

INSERT_DELIVERY = insert(
    "delivery", "id, account, webhook, url, host, event, body, job, attempts, next_attempt_at, created_at"
)
MAKE_RECEIVER_DUE = Statement(
    "INSERT INTO receiver (account, host, due_at, free_at, failures) VALUES (:account, :host, :now, 0, 0)"
    " ON CONFLICT (account, host) DO UPDATE"
    " SET due_at = CASE WHEN receiver.due_at < :now THEN receiver.due_at ELSE :now END"
)


@dataclass(frozen=True)
class Attempt:
    """An attempt to deliver a message. All attempts of a delivery have its id, which is the header `webhook-id`."""

    attempt_id: Annotated[str, Field(exclude=True)]
    delivery_id: DeliveryId
    event: MessageType
    attempt: Annotated[int, Field(ge=1, description="Its number.", examples=[1])]
    status: Annotated[int | None, Field(description="Status of the response; null without one.", examples=[200])]
    error: Annotated[str | None, Field(description="Why there was no response.", examples=[None])]
    milliseconds: Annotated[int, Field(ge=0, examples=[84])]
    next_attempt_at: Annotated[
        Timestamp | None, Field(description="When the next attempt follows, if one does.", examples=[None])
    ]
    created_at: Timestamp


def add(
    transaction: Transaction,
    account: str,
    event: Event,
    describe: Callable[[], Mapping[str, Any]],
    url: str | None = None,
) -> int:
    """Adds a message for each webhook of the account that gets such events, and one for the `url` of a request.

    `describe` returns its data, which are JSON values. It is called only if there is a message. Returns the number of
    messages. The sender finds them within a second, or at once if the caller wakes it after the
    transaction.
    """
    receivers: list[tuple[str | None, str]] = [] if url is None else [(None, url)]
    for webhook, webhook_url, events in transaction.execute_statement(webhooks.SELECT_ACTIVE, account=account):
        if event in events.split():
            receivers.append((webhook, webhook_url))
    return len(_insert(transaction, account, event, describe(), receivers)) if receivers else 0


def add_test(transaction: Transaction, account: str, webhook_id: str) -> str:
    """Adds a message of the type `test` for a webhook. Returns its id. Raises NotFound and WebhookDisabled."""
    webhook = webhooks.get(transaction, account, webhook_id)
    if webhook.disabled_at is not None:
        raise WebhookDisabled
    (delivery_id,) = _insert(transaction, account, "test", {"webhook_id": webhook_id}, [(webhook_id, webhook.url)])
    return delivery_id


def redeliver(transaction: Transaction, account: str, delivery_id: str) -> None:
    """Makes a message due now, also one that was delivered. Raises NotFound and WebhookDisabled."""
    own = (Delivery.delivery_id == delivery_id) & (Delivery.account == account)
    row = transaction.first(Delivery.select().where(own)) if is_id("delivery", delivery_id) else None
    if row is None:
        raise NotFound("delivery")
    if row.webhook is not None and webhooks.get(transaction, account, row.webhook).disabled_at is not None:
        raise WebhookDisabled
    transaction.execute(Delivery.update({Delivery.next_attempt_at: transaction.now}).where(own))
    transaction.execute_statement(MAKE_RECEIVER_DUE, account=account, host=row.host, now=transaction.now)


def erase_job(transaction: Transaction, job_id: str) -> None:
    """Erases the job's own data from its messages, also from messages that are still to be delivered."""
    table = Delivery
    for row in transaction.all(table.select().where(table.job == job_id)):
        message = json.loads(row.body)
        message["data"] |= dict.fromkeys(_ERASED)
        own = table.delivery_id == row.delivery_id
        transaction.execute(table.update(body=_encoded(message)).where(own))


@reading
def list_attempts(transaction: Transaction, webhook_id: str, *, limit: int, cursor: str | None) -> Page[Attempt]:
    """Returns attempts to deliver messages to a webhook, newest first, as `read_page` does."""
    table = DeliveryAttempt
    selected = columns(table, Attempt, next_attempt_at=Delivery.next_attempt_at)
    latest = (Delivery.delivery_id == table.delivery_id) & (Delivery.attempts == table.attempt)
    query = table.select(*selected).join(Delivery, JOIN.LEFT_OUTER, on=latest).where(table.webhook == webhook_id)
    return read_page(transaction, Attempt, query, table.created_at, table.attempt_id, limit=limit, cursor=cursor)


def delete_expired(transaction: Transaction, limit: int) -> int:
    """Deletes at most `limit` messages that have ended and are older than 7 days, oldest first. Returns the number."""
    expired = (Delivery.created_at <= transaction.now - RETENTION) & Delivery.next_attempt_at.is_null()
    query = Delivery.select(Delivery.delivery_id).where(expired).order_by(Delivery.created_at).limit(limit)
    ids = [delivery_id for (delivery_id,) in transaction.rows(query)]
    if not ids:
        return 0
    transaction.execute(DeliveryAttempt.delete().where(DeliveryAttempt.delivery_id.in_(ids)))
    return transaction.execute(Delivery.delete().where(Delivery.delivery_id.in_(ids)))


def _insert(
    transaction: Transaction,
    account: str,
    event: MessageType,
    data: Mapping[str, Any],
    receivers: Iterable[tuple[str | None, str]],
) -> list[str]:
    """Inserts a message for each pair of a webhook, or None, and its URL. Returns the ids."""
    now = transaction.now
    ids = []
    hosts = set()
    timestamp = f"{datetime.fromtimestamp(now, UTC).replace(tzinfo=None).isoformat()}Z"
    body = _encoded({"type": event, "timestamp": timestamp, "data": data})
    for webhook, url in receivers:
        host = urlsplit(url).netloc.lower()
        ids.append(new_id("delivery"))
        row = {"id": ids[-1], "account": account, "webhook": webhook, "url": url, "host": host}
        content = {
            "event": event,
            "body": body,
            "job": data.get("job_id"),
            "attempts": 0,
            "next_attempt_at": now,
            "created_at": now,
        }
        transaction.execute_statement(INSERT_DELIVERY, **row, **content)
        hosts.add(host)
    for host in sorted(hosts):  # in one order, so that no two transactions wait for each other
        transaction.execute_statement(MAKE_RECEIVER_DUE, account=account, host=host, now=now)
    return ids


def _encoded(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))
