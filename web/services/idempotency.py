"""Repeats: a request that comes again under the same idempotency key gets the answer that it had."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConversionError
from storage import idempotency
from storage.database import Database
from storage.idempotency import Claim, InProgress, KeyMismatch, Replay, StoredResponse
from storage.ledger import ServerInstance
from web.api.errors import IdempotencyConflict, IdempotencyKeyReused

LEASE = 180  # seconds: a job's deadline, the wait for its turn, and time to settle


@dataclass(frozen=True)
class IdempotentRequest:
    """A request that may come again: its account's id, its path and its idempotency key."""

    account: str
    path: str
    key: str

    def part(self, name: str) -> IdempotentRequest:
        """A part of the request that is charged on its own."""
        return IdempotentRequest(self.account, f"{self.path}#{name}", self.key)


@dataclass(frozen=True)
class Answer:
    """What a client is told, and the stored file that it can fetch, if there is one."""

    data: Mapping[str, Any]
    file_id: str | None = None


@dataclass(frozen=True)
class Replayed:
    """The answer that the request had when it came first."""

    answer: Answer


class IdempotencyService:
    """Knows requests by account, path and key."""

    def __init__(self, database: Database, owner: ServerInstance) -> None:
        self._database = database
        self._owner = owner

    async def recover(self) -> None:
        """Gives up what earlier runs of this server had claimed, so that their requests can come again."""
        await self._database.run(idempotency.recover, self._owner)

    async def claim(
        self, request: IdempotentRequest, parameters: Mapping[str, Any], uploads: Sequence[Path] = ()
    ) -> Claim | Replayed:
        """A claim on the request's key, or the answer that it had.

        Raises the error that it had, IdempotencyConflict while it runs, and IdempotencyKeyReused for another request.
        """
        digest = await asyncio.to_thread(_fingerprint, uploads, parameters)
        attempt = idempotency.new_claim(request.account, request.path, request.key, self._owner)
        try:
            begun = await self._database.run(idempotency.begin, attempt, digest, LEASE)
        except asyncio.CancelledError:
            await self.abandon(attempt)
            raise
        if isinstance(begun, InProgress):
            retry = {"Retry-After": str(max(1, begun.seconds))}
            raise IdempotencyConflict("The same request is still running.", param="Idempotency-Key", headers=retry)
        if isinstance(begun, KeyMismatch):
            raise IdempotencyKeyReused("This key belongs to another request.", param="Idempotency-Key")
        return _replayed(begun.stored) if isinstance(begun, Replay) else begun

    async def once(
        self,
        request: IdempotentRequest | None,
        parameters: Mapping[str, Any],
        work: Callable[[Claim | None], Awaitable[Answer]],
    ) -> Answer | Replayed:
        """What the work answers, or what it answered when the request came first. Raises as `claim` does.

        Work that fails leaves nothing to be repeated.
        """
        if request is None:
            return await work(None)
        claim = await self.claim(request, parameters)
        if isinstance(claim, Replayed):
            return claim
        try:
            answer = await work(claim)
            await self._database.run(idempotency.finish, claim, stored(answer))
        except BaseException:
            await self.abandon(claim)
            raise
        return answer

    async def renew(self, claim: Claim) -> None:
        """Has the key for another lease, for requests that take longer than one."""
        await self._database.run(idempotency.renew, claim, LEASE)

    async def abandon(self, claim: Claim) -> None:
        """Keeps nothing, so that the request can come again."""
        await asyncio.shield(self._database.run(idempotency.abandon, claim))


def stored(answer: Answer) -> StoredResponse:
    """The answer of a request that succeeded, as it is kept."""
    return StoredResponse(200, body=json.dumps(dict(answer.data)), file_id=answer.file_id)


def _replayed(stored: StoredResponse) -> Replayed:
    body = json.loads(stored.body or "{}")
    if stored.status != 200:
        raise ConversionError.from_json(body)
    return Replayed(Answer(body, stored.file_id))


def _fingerprint(uploads: Sequence[Path], parameters: Mapping[str, Any]) -> str:
    """What makes the request what it is: the files' bytes and the parameters, however they were sent."""
    told = json.dumps([*(_digest(path) for path in uploads), parameters], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
