"""Idempotency keys: a repeated request receives the stored response and is not charged again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storage.database import Transaction, reading
from storage.errors import ClaimLost
from storage.ids import new_id
from storage.tables import models
from storage.tables.ledger import FOREVER, ServerInstance
from storage.tables.servers import claim_prefix

_RETENTION = 86_400  # seconds from the start of the attempt that completed


@dataclass(frozen=True)
class StoredResponse:
    """A stored response: status, headers, and either a text body, a file, or neither."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    file_id: str | None = None


@dataclass(frozen=True)
class Claim:
    """An attempt to process a request. It owns the key until `finish` or `abandon`, or until its server stops."""

    account: str
    path: str
    key: str
    attempt: str


@dataclass(frozen=True)
class InProgress:
    """Another attempt has owned the key for `seconds`."""

    seconds: int


@dataclass(frozen=True)
class Replay:
    """The request has completed before."""

    stored: StoredResponse


@dataclass(frozen=True)
class KeyMismatch:
    """The key was used for a different request."""


ClaimOutcome: TypeAlias = Claim | InProgress | Replay | KeyMismatch


def new_claim(account: str, path: str, key: str, owner: ServerInstance) -> Claim:
    """Creates a claim for `begin`. If `begin` is cancelled, its caller can abandon the claim."""
    return Claim(account, path, key, f"{claim_prefix(owner)}{new_id('try')}")


def begin(transaction: Transaction, claim: Claim, fingerprint: str) -> ClaimOutcome:
    """Claims the key. Returns the claim, or the reason why the key cannot be claimed."""
    state = {
        "fingerprint": fingerprint,
        "state": "running",
        "attempt": claim.attempt,
        "lease_until": FOREVER,
        "created_at": transaction.now,
    }
    names = {"account": claim.account, "path": claim.path, "key": claim.key}
    if transaction.insert_ignore(models.Idempotency.insert(names | state)):
        return claim
    row = transaction.select_for_update(models.Idempotency.select().where(_same_key(claim)))
    if row is None:  # abandoned since the insert
        return begin(transaction, claim, fingerprint)
    conflict = _conflict(row, fingerprint, transaction.now)
    if conflict is None:
        restarted = state | {"status": None, "headers": None, "body": None, "file_id": None}
        transaction.execute(models.Idempotency.update(restarted).where(_same_key(claim)))
    return conflict or claim


@reading
def find(transaction: Transaction, claim: Claim, fingerprint: str) -> InProgress | Replay | KeyMismatch | None:
    """Returns why the key cannot be claimed; None if it can. Claims nothing."""
    row = transaction.first(models.Idempotency.select().where(_same_key(claim)))
    return None if row is None else _conflict(row, fingerprint, transaction.now)


def finish(transaction: Transaction, claim: Claim, stored: StoredResponse) -> None:
    """Stores the response. Must run in the transaction that charges for the request.

    Raises ClaimLost if another attempt has claimed the key.
    """
    done = {
        "state": "done",
        "status": stored.status,
        "headers": json.dumps(dict(stored.headers)),
        "body": stored.body,
        "file_id": stored.file_id,
    }
    if not transaction.execute(models.Idempotency.update(done).where(_running(claim))):
        raise ClaimLost


def abandon(transaction: Transaction, claim: Claim) -> None:
    """Deletes the claim, so that the next attempt runs. Does nothing if another attempt has claimed the key."""
    transaction.execute(models.Idempotency.delete().where(_running(claim)))


def delete_expired(transaction: Transaction) -> int:
    """Deletes responses older than 24 hours, and claims of servers of the previous release that have stopped.

    Returns their number.
    """
    table = models.Idempotency
    idle = (table.state == "done") | (table.lease_until <= transaction.now)
    return transaction.execute(table.delete().where((table.created_at <= transaction.now - _RETENTION) & idle))


def _conflict(row: models.Idempotency, fingerprint: str, now: int) -> InProgress | Replay | KeyMismatch | None:
    """Returns why a new attempt cannot claim the key; None if it can."""
    running = row.state == "running" and row.lease_until > now
    if row.created_at + _RETENTION <= now and not running:
        return None
    if row.fingerprint != fingerprint:
        return KeyMismatch()
    if row.state == "done":
        return Replay(StoredResponse(row.status or 0, json.loads(row.headers or "{}"), row.body, row.file_id))
    return InProgress(now - row.created_at) if running else None


def _same_key(claim: Claim) -> Any:
    table = models.Idempotency
    return (table.account == claim.account) & (table.path == claim.path) & (table.key == claim.key)


def _running(claim: Claim) -> Any:
    table = models.Idempotency
    return _same_key(claim) & (table.attempt == claim.attempt) & (table.state == "running")
