"""Idempotency keys: a repeated request receives the stored response and is not charged again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from peewee import SQL

from storage.database import Transaction, reading
from storage.errors import ClaimLost
from storage.ids import new_id
from storage.tables import models
from storage.tables.ledger import ServerInstance

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
    """An attempt to process a request. After `begin` it owns the key until `finish`, `abandon`, or its lease ends."""

    account: str
    path: str
    key: str
    attempt: str


@dataclass(frozen=True)
class InProgress:
    """Another attempt owns the key for at most `seconds` more."""

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
    return Claim(account, path, key, f"{_attempt_prefix(owner)}{new_id('try')}")


def begin(transaction: Transaction, claim: Claim, fingerprint: str, lease: int) -> ClaimOutcome:
    """Claims the key for `lease` seconds. Returns the claim, or the reason why the key cannot be claimed."""
    state = {
        "fingerprint": fingerprint,
        "state": "running",
        "attempt": claim.attempt,
        "lease_until": transaction.now + lease,
        "created_at": transaction.now,
    }
    names = {"account": claim.account, "path": claim.path, "key": claim.key}
    if transaction.insert_ignore(models.Idempotency.insert(names | state)):
        return claim
    row = transaction.select_for_update(models.Idempotency.select().where(_same_key(claim)))
    if row is None:  # abandoned since the insert
        return begin(transaction, claim, fingerprint, lease)
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


def renew(transaction: Transaction, claim: Claim, lease: int) -> None:
    """Extends the lease to `lease` seconds from now. Raises ClaimLost if another attempt has claimed the key."""
    if not transaction.execute(models.Idempotency.update(lease_until=transaction.now + lease).where(_running(claim))):
        raise ClaimLost


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


def recover(transaction: Transaction, owner: ServerInstance) -> int:
    """Deletes the unfinished claims of earlier runs of this server. Returns their number."""
    # The partial index idempotency_running is used only if the condition of its rows is part of the text.
    table, running = models.Idempotency, SQL("state = 'running'")
    earlier = table.attempt.startswith(f"{owner.server}.") & ~table.attempt.startswith(_attempt_prefix(owner))
    return transaction.execute(table.delete().where(running & earlier))


def delete_expired(transaction: Transaction) -> int:
    """Deletes responses and lapsed claims older than 24 hours. Returns their number."""
    table = models.Idempotency
    idle = (table.state == "done") | (table.lease_until <= transaction.now)
    return transaction.execute(table.delete().where((table.created_at <= transaction.now - _RETENTION) & idle))


def _conflict(row: models.Idempotency, fingerprint: str, now: int) -> InProgress | Replay | KeyMismatch | None:
    """Returns why a new attempt cannot claim the key; None if it can."""
    leased = row.state == "running" and row.lease_until > now
    if row.created_at + _RETENTION <= now and not leased:
        return None
    if row.fingerprint != fingerprint:
        return KeyMismatch()
    if row.state == "done":
        return Replay(StoredResponse(row.status or 0, json.loads(row.headers or "{}"), row.body, row.file_id))
    return InProgress(row.lease_until - now) if leased else None


def _attempt_prefix(owner: ServerInstance) -> str:
    """Prefix of the attempt ids of one run of a server."""
    return f"{owner.server}.{owner.boot}."


def _same_key(claim: Claim) -> Any:
    table = models.Idempotency
    return (table.account == claim.account) & (table.path == claim.path) & (table.key == claim.key)


def _running(claim: Claim) -> Any:
    table = models.Idempotency
    return _same_key(claim) & (table.attempt == claim.attempt) & (table.state == "running")
