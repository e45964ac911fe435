"""/account: the account, its usage, and its API keys."""

from __future__ import annotations

import time
from dataclasses import replace

from storage.tables import usage
from web.api.fields import KeyRotationFields, NewKeyFields, UsageQuery
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, json_response
from web.api.schemas import accounts as schemas
from web.api.times import parse_period
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.usage_report import usage_csv


class AccountResource(BaseHandler):
    """The account, its balance and its limits."""

    fixed_headers = NO_STORE

    @Operation(id="getAccount", tag="Account", responses=(json_response(schemas.Account),))
    async def get(self) -> None:
        """Get the account, its balance and its limits"""
        stored = await self.services.files.stored_bytes(self.client().id)
        account, tier, settings = self.client(), self.client().tier, self.services.settings
        limits = schemas.Limits(
            max_file_size=tier.max_file_size,
            max_batch_files=settings.max_batch_files,
            max_merge_files=self.services.registry.tools["pdf-merge"].inputs[-1],
            max_concurrent=tier.max_concurrent,
            file_retention_seconds=settings.file_retention_seconds,
        )
        storage = schemas.Storage(stored, tier.max_stored)
        rate_limit = schemas.RateLimit(self.authorization.status)
        self.respond(schemas.Account(account, tier.name, tier.max_file_size, storage, rate_limit, limits))


class Usage(BaseHandler):
    """Conversions and data transfer in a period."""

    fixed_headers = NO_STORE

    @Operation(
        id="getUsage",
        tag="Account",
        query=UsageQuery,
        responses=(
            replace(json_response(schemas.Usage), headers=("Vary",)),
            Response(200, "`by_day` as CSV, with `Accept: text/csv`.", media_types=("text/csv",), headers=("Vary",)),
        ),
    )
    async def get(self) -> None:
        """Get the usage in a period

        Requests that were refused with a 4xx status are not counted.
        """
        period = self.input.query_fields(UsageQuery).period or parse_period(None, int(time.time()))
        report = await self.services.database.read(usage.report, self.client().id, period.start, period.end)
        self.set_header("Vary", "Accept")
        accept = self.request.headers.get("Accept", "")
        if "text/csv" in accept.lower() and not wants_json(accept):
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("X-Credits-Remaining", str(self.client().credits_remaining))
            self.write(usage_csv(report.by_day))
        else:
            self.respond(schemas.Usage(period.name, report))


class Keys(BaseHandler):
    """The account's API keys."""

    fixed_headers = NO_STORE

    @Operation(id="listKeys", tag="Account", responses=(json_response(schemas.Keys),))
    async def get(self) -> None:
        """List the valid API keys"""
        keys = await self.services.accounts.list_keys(self.client().id)
        self.respond(schemas.Keys(keys, len(keys)))

    @Operation(id="createKey", tag="Account", json=NewKeyFields, responses=(json_response(schemas.IssuedKey),))
    async def post(self) -> None:
        """Create an API key"""
        account = self.client()
        name = self.input.json_fields(NewKeyFields).name or account.name
        issued = await self.services.accounts.issue_key(account.id, name)
        self.respond(schemas.IssuedKey(issued.key, issued.text))


class KeyResource(BaseHandler):
    """An API key."""

    fixed_headers = NO_STORE

    @Operation(id="revokeKey", tag="Account", responses=(json_response(schemas.RevokedKey),))
    async def delete(self, key_id: str) -> None:
        """Revoke an API key

        The last key cannot be revoked, only rotated.
        """
        await self.services.accounts.revoke_key(self.client().id, key_id)
        self.respond(schemas.RevokedKey(key_id))


class KeyRotation(BaseHandler):
    """Replaces an API key, which stays valid for a grace period."""

    fixed_headers = NO_STORE

    @Operation(id="rotateKey", tag="Account", json=KeyRotationFields, responses=(json_response(schemas.RotatedKey),))
    async def post(self, key_id: str) -> None:
        """Replace an API key"""
        grace = self.input.json_fields(KeyRotationFields).grace_period_seconds
        issued = await self.services.accounts.rotate_key(self.client().id, key_id, grace)
        self.respond(schemas.RotatedKey(schemas.IssuedKey(issued.key, issued.text), key_id, grace))
