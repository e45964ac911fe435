"""Receivers: the hosts that an account has messages for. Servers claim them and send the messages.

Receivers are claimed and not single messages: one server at a time decides how much a host bears, and many messages for
one host hide none for others. A message is delivered at least once; what a server that is killed
has sent without recording it is sent again.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from peewee import fn

from storage.database.transaction import Statement, Transaction, insert, lookup, unsynced
from storage.ids import new_id
from storage.tables import webhooks
from storage.tables.deliveries import MessageType
from storage.tables.ledger import FOREVER, ServerInstance
from storage.tables.servers import claim_prefix
from storage.tables.webhook_models import Delivery, Receiver
from storage.tables.webhooks import DisabledReason

RETRY_DELAYS = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)  # seconds after each failed attempt
MAX_FAILURES = 5  # consecutive ones; then a receiver gets one message at a time, with pauses
PAUSE = 30  # seconds
MAX_FAILING = 432_000  # seconds without a success after which a webhook ends: 5 days
_JITTER = 0.1  # An attempt is made by up to this part of its delay earlier or later.
_MAX_CLAIMED = 100  # messages of one receiver

SELECT_OLDEST_DUE = Statement(
    "SELECT due_at FROM receiver WHERE due_at <= :now AND free_at <= :now ORDER BY due_at LIMIT 1"
)
RECORD_SUCCESS = Statement("UPDATE webhook SET failing_since = NULL WHERE id = :webhook AND failing_since IS NOT NULL")
RECORD_FAILURE = Statement(
    "UPDATE webhook SET failing_since = COALESCE(failing_since, :now) WHERE id = :webhook RETURNING failing_since"
)
# No row if another server has sent the message, too, or if it has been deleted meanwhile.
END_ATTEMPT = Statement(
    "UPDATE delivery SET attempts = :attempt, next_attempt_at = :next_attempt_at"
    " WHERE id = :delivery AND attempts = :attempt - 1 RETURNING id"
)
INSERT_ATTEMPT = insert(
    "delivery_attempt", "id, delivery, attempt, webhook, event, status, error, milliseconds, created_at"
)


@dataclass(frozen=True)
class Message:
    """A message to deliver. `attempts` is the number of those before, `secrets` sign it."""

    delivery_id: str
    webhook: str | None
    url: str
    event: MessageType
    body: str = field(repr=False)
    attempts: int
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class ClaimedReceiver:
    """A receiver with its due messages. `failures` is the number of consecutive failures before."""

    account: str
    host: str
    claim: str
    failures: int
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class AttemptResult:
    """The result of an attempt: the status of the response, or why there was none. `ended_at` is Unix time, seconds."""

    status: int | None
    error: str | None
    milliseconds: int
    ended_at: float

    @property
    def delivered(self) -> bool:
        """Whether the receiver has accepted the message."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@lookup
def oldest_due(transaction: Transaction) -> int | None:
    """Returns since when the message is due that has waited longest, of the receivers that can be claimed."""
    rows = transaction.execute_statement(SELECT_OLDEST_DUE, now=transaction.now)
    return int(rows[0][0]) if rows else None


@unsynced
def claim(
    transaction: Transaction, owner: ServerInstance, limit: int, share: int, running: Mapping[str, int]
) -> tuple[ClaimedReceiver, ...]:
    """Claims receivers with due messages: at most `limit`, those first that have waited longest.

    An account gets at most `share`, with those that the server sends to already (`running`, by account).
    """
    numbers = Counter(running)
    claimed = list[Receiver]()
    full = {account for account, number in running.items() if number >= share}
    claim_id = f"{claim_prefix(owner)}{new_id('claim')}"
    another = True
    while another and len(claimed) < limit:
        rows = _select_free(transaction, limit - len(claimed), full)
        taken = []
        for row in rows:
            if numbers[row.account] < share:
                numbers[row.account] += 1
                taken.append(row)
        # Receivers beyond the share of their account have kept others out of the selection.
        full |= {row.account for row in rows if numbers[row.account] >= share}
        another = len(taken) < len(rows)
        for row in taken:
            changes = {Receiver.claim: claim_id, Receiver.free_at: FOREVER}
            transaction.execute(Receiver.update(changes).where(_same(row)))
        claimed += taken
    return tuple(_with_messages(transaction, row, claim_id) for row in claimed)


@unsynced
def record(transaction: Transaction, message: Message, result: AttemptResult) -> DisabledReason | None:
    """Records an attempt and the time of the next one. Returns why the webhook has ended with it, if it has."""
    # Webhooks are locked before their deliveries, as where they are deleted or disabled.
    ended = None if message.webhook is None else _record_health(transaction, message.webhook, result)
    attempt = message.attempts + 1
    final = ended or result.delivered or result.status == HTTPStatus.GONE or attempt > len(RETRY_DELAYS)
    next_attempt_at = None if final else _next_attempt_at(attempt, result.ended_at)
    times = {"next_attempt_at": next_attempt_at, "created_at": transaction.now}
    row = {"delivery": message.delivery_id, "attempt": attempt, "webhook": message.webhook, "event": message.event}
    if transaction.execute_statement(END_ATTEMPT, **row, **times):
        outcome = {"status": result.status, "error": result.error, "milliseconds": result.milliseconds}
        outcome["id"] = f"{message.delivery_id}_{attempt}"
        transaction.execute_statement(INSERT_ATTEMPT, **row, **times, **outcome)
    return ended


@unsynced
def release(transaction: Transaction, receiver: ClaimedReceiver, failures: int) -> None:
    """Ends a claim. The receiver pauses if at least MAX_FAILURES consecutive attempts have failed."""
    claimed = transaction.select_for_update(
        Receiver.select().where(_same(receiver) & (Receiver.claim == receiver.claim))
    )
    if claimed is None:
        return
    # After the lock: a message that is added later waits for it, and makes the receiver due again.
    query = Delivery.select(fn.MIN(Delivery.next_attempt_at)).where(_waiting(receiver))
    ((due_at,),) = transaction.rows(query)
    if due_at is None:
        transaction.execute(Receiver.delete().where(_same(receiver)))
        return
    free_at = transaction.now + (PAUSE if failures >= MAX_FAILURES else 0)
    changes = {Receiver.due_at: due_at, Receiver.free_at: free_at, Receiver.claim: None, Receiver.failures: failures}
    transaction.execute(Receiver.update(changes).where(_same(receiver)))


def _select_free(transaction: Transaction, limit: int, full: Iterable[str]) -> list[Receiver]:
    """Locks and returns receivers that are due and not claimed, without the accounts in `full`."""
    now = transaction.now
    free = (Receiver.due_at <= now) & (Receiver.free_at <= now) & Receiver.account.not_in(sorted(full))
    query = Receiver.select().where(free).order_by(Receiver.due_at).limit(limit)
    return transaction.all(query.for_update(skip_locked=True) if transaction.connection.for_update else query)


def _with_messages(transaction: Transaction, row: Receiver, claim_id: str) -> ClaimedReceiver:
    limit = _MAX_CLAIMED if row.failures < MAX_FAILURES else 1
    due = _waiting(row) & (Delivery.next_attempt_at <= transaction.now)
    own = (Delivery.delivery_id, Delivery.webhook, Delivery.url, Delivery.event, Delivery.body, Delivery.attempts)
    rows = transaction.rows(Delivery.select(*own).where(due).order_by(Delivery.next_attempt_at).limit(limit))
    secrets = webhooks.signing_secrets(transaction, {webhook or row.account for _, webhook, *_ in rows})
    messages = [
        Message(
            delivery_id=delivery_id,
            webhook=webhook,
            url=url,
            event=event,
            body=body,
            attempts=attempts,
            secrets=secrets.get(webhook or row.account, ()),
        )
        for delivery_id, webhook, url, event, body, attempts in rows
    ]
    return ClaimedReceiver(row.account, row.host, claim_id, row.failures, tuple(messages))


def _record_health(transaction: Transaction, webhook: str, result: AttemptResult) -> DisabledReason | None:
    """Records since when a webhook fails. Disables it after 410, and after five days of failures."""
    if result.delivered:
        transaction.execute_statement(RECORD_SUCCESS, webhook=webhook)
        return None
    rows = transaction.execute_statement(RECORD_FAILURE, webhook=webhook, now=transaction.now)
    failing = bool(rows) and rows[0][0] <= transaction.now - MAX_FAILING
    if result.status != HTTPStatus.GONE and not failing:
        return None
    ended: DisabledReason = "gone" if result.status == HTTPStatus.GONE else "failing"
    return ended if webhooks.disable(transaction, webhook, ended) else None


def _next_attempt_at(attempt: int, ended_at: float) -> int:
    """Returns when the attempt after this one is: its delay from the table, 10 % earlier or later, in whole seconds."""
    delay = RETRY_DELAYS[attempt - 1]
    spread = delay * _JITTER - 0.5  # rounding adds half a second
    return round(ended_at + delay + random.uniform(-spread, spread))


def _same(row: Receiver | ClaimedReceiver) -> Any:
    return (Receiver.account == row.account) & (Receiver.host == row.host)


def _waiting(row: Receiver | ClaimedReceiver) -> Any:
    """The condition of messages that are not delivered, and for which the partial index `delivery_due` is used."""
    own = (Delivery.account == row.account) & (Delivery.host == row.host)
    return own & Delivery.next_attempt_at.is_null(False)
