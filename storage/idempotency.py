"""Idempotency keys: a request that comes again gets the answer that it had, and is not charged again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storage import models
from storage.errors import ClaimLost
from storage.ids import new_id
from storage.ledger import ServerInstance
from storage.transaction import Transaction

KEPT = 86_400  # seconds from the beginning of the attempt that was answered


@dataclass(frozen=True)
class StoredResponse:
    """An answer: its status, its headers, and a body of text, a file, or neither."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    file_id: str | None = None


@dataclass(frozen=True)
class Claim:
    """An attempt at a request. Once begun it has the key to itself until its lease runs out, or it ends.

    It ends with `finish` or `abandon`.
    """

    account: str
    path: str
    key: str
    attempt: str


@dataclass(frozen=True)
class InProgress:
    """Another attempt works on it, for `seconds` more at most."""

    seconds: int


@dataclass(frozen=True)
class Replay:
    """It has been answered."""

    stored: StoredResponse


@dataclass(frozen=True)
class KeyMismatch:
    """The key belongs to another request."""


ClaimOutcome: TypeAlias = Claim | InProgress | Replay | KeyMismatch


def attempt(account: str, path: str, key: str, owner: ServerInstance) -> Claim:
    """An attempt that is yet to begin, so that it can be abandoned even if nobody hears how its beginning ended."""
    return Claim(account, path, key, f"{_attempts(owner)}{new_id('try')}")


def begin(transaction: Transaction, claim: Claim, fingerprint: str, lease: int) -> ClaimOutcome:
    """Claims the key for `lease` seconds, unless its request runs, has been answered, or was another one."""
    state = {
        "fingerprint": fingerprint,
        "state": "running",
        "attempt": claim.attempt,
        "lease_until": transaction.now + lease,
        "created_at": transaction.now,
    }
    names = {"account": claim.account, "path": claim.path, "key": claim.key}
    if transaction.add_if_new(models.Idempotency.insert(names | state)):
        return claim
    row = transaction.locked(models.Idempotency.select().where(_named(claim)))
    if row is None:  # abandoned at this very moment
        return begin(transaction, claim, fingerprint, lease)
    found = _found(row, fingerprint, transaction.now)
    if found is None:
        again = state | {"status": None, "headers": None, "body": None, "file_id": None}
        transaction.change(models.Idempotency.update(again).where(_named(claim)))
    return found or claim


def renew(transaction: Transaction, claim: Claim, lease: int) -> None:
    """Has the key for `lease` more seconds. Raises ClaimLost where another attempt has taken over."""
    if not transaction.change(models.Idempotency.update(lease_until=transaction.now + lease).where(_running(claim))):
        raise ClaimLost


def finish(transaction: Transaction, claim: Claim, stored: StoredResponse) -> None:
    """Keeps the answer. Belongs into the transaction that charges for it, so that both happen or neither.

    Raises ClaimLost where another attempt has taken over.
    """
    done = {
        "state": "done",
        "status": stored.status,
        "headers": json.dumps(dict(stored.headers)),
        "body": stored.body,
        "file_id": stored.file_id,
    }
    if not transaction.change(models.Idempotency.update(done).where(_running(claim))):
        raise ClaimLost


def abandon(transaction: Transaction, claim: Claim) -> None:
    """Keeps nothing: the next attempt runs anew. Does nothing where another attempt has taken over."""
    transaction.change(models.Idempotency.delete().where(_running(claim)))


def recover(transaction: Transaction, owner: ServerInstance) -> int:
    """Gives up the claims that earlier runs of this server had when they ended; says how many."""
    table = models.Idempotency
    earlier = table.attempt.startswith(f"{owner.server}.") & ~table.attempt.startswith(_attempts(owner))
    return transaction.change(table.delete().where((table.state == "running") & earlier))


def sweep(transaction: Transaction) -> int:
    """Forgets what is older than 24 hours; says how many."""
    table = models.Idempotency
    idle = (table.state == "done") | (table.lease_until <= transaction.now)
    return transaction.change(table.delete().where((table.created_at + KEPT <= transaction.now) & idle))


def _found(row: models.Idempotency, fingerprint: str, now: int) -> InProgress | Replay | KeyMismatch | None:
    """What the row says to a new attempt; None where that may take it over."""
    leased = row.state == "running" and row.lease_until > now
    if row.created_at + KEPT <= now and not leased:
        return None
    if row.fingerprint != fingerprint:
        return KeyMismatch()
    if row.state == "done":
        return Replay(StoredResponse(row.status or 0, json.loads(row.headers or "{}"), row.body, row.file_id))
    return InProgress(row.lease_until - now) if leased else None


def _attempts(owner: ServerInstance) -> str:
    """What the attempts of a run of a server have in common."""
    return f"{owner.server}.{owner.boot}."


def _named(claim: Claim) -> Any:
    table = models.Idempotency
    return (table.account == claim.account) & (table.path == claim.path) & (table.key == claim.key)


def _running(claim: Claim) -> Any:
    table = models.Idempotency
    return _named(claim) & (table.attempt == claim.attempt) & (table.state == "running")
