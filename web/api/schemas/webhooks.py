"""Responses about webhooks: what the web layer adds to the values of the database."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from storage.field_types import Cursor, DeliveryId, WebhookId
from storage.tables.deliveries import Attempt
from storage.tables.webhooks import StoredWebhook
from web.api.values import Flat, Inline, Message

_NEW_SECRET = "Store this secret safely. It is not shown again. The secret that it replaces also signs for 24 hours."

Secret: TypeAlias = Annotated[
    str,
    Field(
        pattern="^whsec_[A-Za-z0-9+/]{43}=$",
        description="Signs the messages. Shown only once.",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="],
    ),
]
SecretMessage: TypeAlias = Annotated[Message, Field(examples=[_NEW_SECRET])]


@dataclass(frozen=True)
class IssuedWebhook(Flat):
    """A webhook with a new secret."""

    webhook: Inline[StoredWebhook]
    secret: Secret
    message: SecretMessage = _NEW_SECRET


@dataclass(frozen=True)
class WebhookList:
    """Webhooks, newest first. An account has at most five."""

    webhooks: tuple[StoredWebhook, ...]
    next_cursor: Cursor


@dataclass(frozen=True)
class DeletedWebhook:
    """A deleted webhook."""

    webhook_id: WebhookId
    deleted: Literal[True] = True


@dataclass(frozen=True)
class OwnSecret:
    """The new secret of the account, for the URLs that its requests name."""

    secret: Secret
    message: SecretMessage = _NEW_SECRET


@dataclass(frozen=True)
class AttemptList:
    """Attempts to deliver messages, newest first. They are kept for seven days."""

    deliveries: tuple[Attempt, ...]
    next_cursor: Cursor


@dataclass(frozen=True)
class QueuedDelivery:
    """A message that is being delivered."""

    delivery_id: DeliveryId
