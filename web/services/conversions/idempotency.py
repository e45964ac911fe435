"""Idempotency keys: a repeated request receives the stored response of the first one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import ConversionError
from storage.database import Database
from storage.errors import CommitUnknown
from storage.tables import idempotency
from storage.tables.idempotency import Claim, InProgress, KeyMismatch, Replay, StoredResponse
from storage.tables.ledger import ServerInstance
from web.api.errors import IdempotencyConflict, IdempotencyKeyReused
from web.services.conversions.releases import Releases
from web.services.files.work_files import WorkFile

_MAX_RETRY_AFTER = 30  # seconds
_ERRORS = 400  # the lowest status of an error


@dataclass(frozen=True)
class IdempotentRequest:
    """The identity of a repeatable request: account id, path and idempotency key."""

    account: str
    path: str
    key: str

    def part(self, name: str) -> IdempotentRequest:
        """The identity of a part of the request that is charged separately."""
        return IdempotentRequest(self.account, f"{self.path}#{name}", self.key)


@dataclass(frozen=True)
class ResponseData:
    """The `data` of a successful response, and the id of the stored result if there is one.

    The status is 202 if the data describe a job.
    """

    data: Mapping[str, Any]
    file_id: str | None = None
    status: int = 200


@dataclass(frozen=True)
class Replayed:
    """The stored response, or the stored error, of an earlier request with the same idempotency key."""

    outcome: ResponseData | ConversionError

    @property
    def response(self) -> ResponseData:
        """The response. Raises the error, if that is stored."""
        if isinstance(self.outcome, ConversionError):
            raise self.outcome
        return self.outcome


class IdempotencyService:
    """Claims idempotency keys. `owner` identifies this run of this server."""

    def __init__(self, database: Database, owner: ServerInstance, releases: Releases) -> None:
        self._database = database
        self._owner = owner
        self._releases = releases

    async def prepare(
        self, request: IdempotentRequest, parameters: Mapping[str, Any], uploads: Sequence[WorkFile] = ()
    ) -> tuple[Claim, str]:
        """Returns an attempt to claim the request's key, and the fingerprint of its parameters and uploads."""
        fingerprint = _fingerprint([await upload.digest() for upload in uploads], parameters)
        return idempotency.new_claim(request.account, request.path, request.key, self._owner), fingerprint

    async def claim(
        self, request: IdempotentRequest, parameters: Mapping[str, Any], uploads: Sequence[WorkFile] = ()
    ) -> Claim | Replayed:
        """Claims the request's key, or returns what an earlier request has stored.

        Raises IdempotencyConflict while that request is in progress, and IdempotencyKeyReused if its parameters or
        uploads differ.
        """
        attempt, fingerprint = await self.prepare(request, parameters, uploads)
        try:
            outcome = await self._database.run(idempotency.begin, attempt, fingerprint)
        except (asyncio.CancelledError, CommitUnknown):  # the claim may exist
            await self.abandon(attempt)
            raise
        return outcome if isinstance(outcome, Claim) else replayed(outcome)

    async def find(
        self, request: IdempotentRequest, parameters: Mapping[str, Any], uploads: Sequence[WorkFile] = ()
    ) -> Replayed | None:
        """Returns what an earlier request has stored, if there is one. Claims nothing. Raises as `claim` does."""
        found = await self._database.run(idempotency.find, *await self.prepare(request, parameters, uploads))
        return None if found is None else replayed(found)

    async def run_once(
        self,
        request: IdempotentRequest | None,
        parameters: Mapping[str, Any],
        work: Callable[[Claim | None], Awaitable[ResponseData]],
    ) -> ResponseData | Replayed:
        """Runs `work` and stores its response, or returns the stored one. Raises the errors of `claim`.

        If `work` raises, nothing is stored. Without a request, `work` runs without a claim.
        """
        if request is None:
            return await work(None)
        claim = await self.claim(request, parameters)
        if isinstance(claim, Replayed):
            return claim
        try:
            response = await work(claim)
            await self._database.run(idempotency.finish, claim, stored_response(response))
        except BaseException:
            await self.abandon(claim)
            raise
        return response

    async def abandon(self, claim: Claim) -> None:
        """Releases the claim without a stored response."""
        await self._releases.run(idempotency.abandon, claim)


def stored_response(response: ResponseData) -> StoredResponse:
    """The response of a successful request as the database stores it."""
    return StoredResponse(response.status, body=json.dumps(dict(response.data)), file_id=response.file_id)


def replayed(outcome: InProgress | Replay | KeyMismatch) -> Replayed:
    """Returns what an earlier request has stored. Raises IdempotencyConflict and IdempotencyKeyReused."""
    if isinstance(outcome, InProgress):
        # A request that has run for n seconds is expected to run for as long again.
        retry_after = min(max(1, outcome.seconds), _MAX_RETRY_AFTER)
        message = "The same request is still running."
        raise IdempotencyConflict(message, param="Idempotency-Key", retry_after=retry_after)
    if isinstance(outcome, KeyMismatch):
        raise IdempotencyKeyReused("This idempotency key was used for a different request.", param="Idempotency-Key")
    stored = outcome.stored
    body = json.loads(stored.body or "{}")
    if stored.status >= _ERRORS:
        return Replayed(ConversionError.from_json(body))
    return Replayed(ResponseData(body, stored.file_id, stored.status))


def _fingerprint(digests: Sequence[str], parameters: Mapping[str, Any]) -> str:
    """SHA-256 of the uploads' digests and the parameters, independent of their encoding in the request."""
    content = json.dumps([*digests, parameters], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
