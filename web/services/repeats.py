"""Repeats: a request that comes again under the same idempotency key gets the answer that it had."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConversionError
from storage import idempotency
from storage.database import Database
from storage.idempotency import Fresh, Replay, Reused, Running, Stored
from storage.ledger import Owner
from web.errors import IdempotencyConflict, IdempotencyKeyReused
from web.services.charges import LIFETIME


@dataclass(frozen=True)
class Repeatable:
    """A request that may come again: its account's id, its path and its idempotency key."""

    account: str
    path: str
    key: str


@dataclass(frozen=True)
class Replayed:
    """The answer that a request had: its data, and the file that it made."""

    data: Mapping[str, Any]
    file_id: str | None


class Repeats:
    """Knows requests by account, path and key."""

    def __init__(self, database: Database, owner: Owner) -> None:
        self._database = database
        self._owner = owner

    async def recover(self) -> None:
        """Gives up what earlier runs of this server had claimed, so that their requests can come again."""
        await self._database.run(idempotency.recover, self._owner)

    async def claim(self, request: Repeatable, upload: Path, parameters: Mapping[str, Any]) -> Fresh | Replayed:
        """A claim on the request's key, or the answer that it had.

        Raises the error that it had, IdempotencyConflict while it runs, and IdempotencyKeyReused for another request.
        """
        digest = await asyncio.to_thread(_fingerprint, upload, parameters)
        names = (request.account, request.path, request.key)
        begun = await self._database.run(idempotency.begin, *names, digest, LIFETIME, self._owner)
        if isinstance(begun, Running):
            retry = {"Retry-After": str(max(1, begun.seconds))}
            raise IdempotencyConflict("The same request is still running.", param="Idempotency-Key", headers=retry)
        if isinstance(begun, Reused):
            raise IdempotencyKeyReused("This key belongs to another request.", param="Idempotency-Key")
        return _replayed(begun.stored) if isinstance(begun, Replay) else begun


def _replayed(stored: Stored) -> Replayed:
    body = json.loads(stored.body or "{}")
    if stored.status != 200:
        raise ConversionError.from_json(body)
    return Replayed(body, stored.file_id)


def _fingerprint(upload: Path, parameters: Mapping[str, Any]) -> str:
    """What makes the request what it is: the file's bytes and the parameters, however they were sent."""
    told = json.dumps(parameters, sort_keys=True)
    return hashlib.sha256(f"{_digest(upload)} {told}".encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
