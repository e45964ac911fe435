"""Webhooks: URLs that get messages about events of an account, and the secrets that sign the messages."""

import base64
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field

from storage.database.pages import Page, read_page
from storage.database.transaction import Statement, Transaction, columns, reading
from storage.errors import NotFound, TooManyRotations, TooManyWebhooks
from storage.field_types import Timestamp, WebhookId
from storage.ids import is_id, new_id
from storage.tables.models import Account
from storage.tables.webhook_models import Delivery, DeliveryAttempt, Receiver, SigningSecret, Webhook

Event: TypeAlias = Literal["job.completed", "job.failed", "job.cancelled", "credits.low"]
DisabledReason: TypeAlias = Literal["gone", "failing"]

EVENTS: tuple[Event, ...] = get_args(Event)
MAX_WEBHOOKS = 5
OVERLAP = 86_400  # seconds for which a replaced secret signs, too
MAX_ROTATIONS = 10  # of a secret within OVERLAP: all of its secrets sign each message
_SECRET_BYTES = 32
_PREFIX = "whsec_"  # defined by Standard Webhooks

SELECT_ACTIVE = Statement("SELECT id, url, events FROM webhook WHERE account = :account AND disabled_at IS NULL")


@dataclass(frozen=True)
class StoredWebhook:
    """A webhook without its secret."""

    webhook_id: WebhookId
    url: Annotated[str, Field(examples=["https://example.com/hooks/convertd"])]
    events: Annotated[Sequence[Event], Field(description="The events that it gets.")]
    created_at: Timestamp
    disabled_at: Annotated[
        Timestamp | None, Field(description="When it was disabled. It gets no messages since.", examples=[None])
    ] = None
    disabled_reason: Annotated[
        DisabledReason | None,
        Field(
            description="`gone`: it responded with 410. `failing`: all deliveries of five days failed.", examples=[None]
        ),
    ] = None


@dataclass(frozen=True)
class IssuedWebhook:
    """A webhook with a new secret."""

    webhook: StoredWebhook
    secret: str = field(repr=False)


def add(transaction: Transaction, account: str, url: str, events: Collection[Event]) -> IssuedWebhook:
    """Creates a webhook, with a secret. Raises TooManyWebhooks."""
    # Locked, because two requests could each add the last one.
    transaction.select_for_update(Account.select().where(Account.id == account))
    if len(list_all(transaction, account)) >= MAX_WEBHOOKS:
        raise TooManyWebhooks(MAX_WEBHOOKS)
    chosen = tuple(event for event in EVENTS if event in events)
    webhook = StoredWebhook(new_id("webhook"), url, chosen, transaction.now)
    row = {"webhook_id": webhook.webhook_id, "account": account, "url": url, "events": " ".join(chosen)}
    transaction.insert(Webhook.insert(**row, created_at=transaction.now))
    return IssuedWebhook(webhook, replace_secret(transaction, webhook.webhook_id))


@reading
def list_all(transaction: Transaction, account: str) -> tuple[StoredWebhook, ...]:
    """Returns the account's webhooks, newest first."""
    return list_page(transaction, account, limit=MAX_WEBHOOKS, cursor=None).values


@reading
def list_page(transaction: Transaction, account: str, *, limit: int, cursor: str | None) -> Page[StoredWebhook]:
    """Returns webhooks of the account, newest first, as `read_page` does."""
    query = _select(Webhook.account == account)
    return read_page(transaction, _stored, query, Webhook.created_at, Webhook.webhook_id, limit=limit, cursor=cursor)


@reading
def get(transaction: Transaction, account: str, webhook_id: str) -> StoredWebhook:
    """Returns a webhook of the account. Raises NotFound."""
    own = (Webhook.webhook_id == webhook_id) & (Webhook.account == account)
    found = transaction.values(_stored, _select(own)) if is_id("webhook", webhook_id) else ()
    if not found:
        raise NotFound("webhook")
    return found[0]


def delete(transaction: Transaction, account: str, webhook_id: str) -> StoredWebhook:
    """Deletes a webhook with its secrets and deliveries. Returns it. Raises NotFound."""
    webhook = get(transaction, account, webhook_id)
    transaction.execute(Webhook.delete().where(Webhook.webhook_id == webhook_id))
    transaction.execute(SigningSecret.delete().where(SigningSecret.owner == webhook_id))
    own = (Delivery.account == account) & (Delivery.webhook == webhook_id)
    transaction.execute(Delivery.delete().where(own))
    transaction.execute(DeliveryAttempt.delete().where(DeliveryAttempt.webhook == webhook_id))
    return webhook


def delete_all(transaction: Transaction, account: str) -> None:
    """Deletes everything about webhooks of the account."""
    deliveries = Delivery.select(Delivery.delivery_id).where(Delivery.account == account)
    transaction.execute(DeliveryAttempt.delete().where(DeliveryAttempt.delivery_id.in_(deliveries)))
    owners = (account, *(webhook.webhook_id for webhook in list_all(transaction, account)))
    transaction.execute(SigningSecret.delete().where(SigningSecret.owner.in_(owners)))
    for table in (Webhook, Delivery, Receiver):
        transaction.execute(table.delete().where(table.account == account))


def disable(transaction: Transaction, webhook_id: str, reason: DisabledReason) -> bool:
    """Ends a webhook and its undelivered messages. Returns False if it has ended before, or does not exist."""
    active = (Webhook.webhook_id == webhook_id) & Webhook.disabled_at.is_null()
    changes = {Webhook.disabled_at: transaction.now, Webhook.disabled_reason: reason}
    accounts = transaction.execute_returning(Webhook.update(changes).where(active), Webhook.account)
    for (account,) in accounts:
        own = (Delivery.account == account) & (Delivery.webhook == webhook_id)
        waiting = own & Delivery.next_attempt_at.is_null(False)
        transaction.execute(Delivery.update({Delivery.next_attempt_at: None}).where(waiting))
    return bool(accounts)


def rotate(transaction: Transaction, account: str, webhook_id: str) -> IssuedWebhook:
    """Replaces the secret of a webhook. Raises NotFound and TooManyRotations."""
    return IssuedWebhook(get(transaction, account, webhook_id), replace_secret(transaction, webhook_id))


def replace_secret(transaction: Transaction, owner: str) -> str:
    """Makes the secret of a webhook, or of an account for the URLs that its requests name. Returns it.

    The one before signs messages, too, for a day. Raises TooManyRotations.
    """
    table = SigningSecret
    ends = transaction.now + OVERLAP
    transaction.execute(
        table.update({table.expires_at: ends}).where((table.owner == owner) & table.expires_at.is_null())
    )
    # After the update, for which another replacement of the same secret waits.
    valid = [row.expires_at for row in transaction.all(table.select().where(_valid(transaction, (owner,))))]
    if len(valid) > MAX_ROTATIONS:
        raise TooManyRotations(MAX_ROTATIONS, min(filter(None, valid)) - transaction.now)
    secret = _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    transaction.insert(table.insert(owner=owner, secret=secret, created_at=transaction.now))
    return secret


@reading
def signing_secrets(transaction: Transaction, owners: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Returns the secrets that sign the messages of webhooks and accounts, newest first. Some may have none."""
    table = SigningSecret
    newest_first = (table.expires_at.is_null(False), table.created_at.desc(), table.secret)
    found: dict[str, tuple[str, ...]] = {}
    for row in transaction.all(table.select().where(_valid(transaction, owners)).order_by(*newest_first)):
        found[row.owner] = (*found.get(row.owner, ()), row.secret)
    return found


def delete_expired_secrets(transaction: Transaction) -> int:
    """Deletes replaced secrets that no longer sign. Returns their number."""
    return transaction.execute(SigningSecret.delete().where(SigningSecret.expires_at <= transaction.now))


def _valid(transaction: Transaction, owners: Collection[str]) -> Any:
    is_current = SigningSecret.expires_at.is_null() | (SigningSecret.expires_at > transaction.now)
    return SigningSecret.owner.in_(owners) & is_current


def _select(condition: Any) -> Any:
    return Webhook.select(*columns(Webhook, StoredWebhook)).where(condition)


def _stored(webhook_id: str, url: str, events: str, *additional: Any) -> StoredWebhook:
    """A webhook of the columns of its fields."""
    return StoredWebhook(webhook_id, url, tuple(event for event in EVENTS if event in events.split()), *additional)
