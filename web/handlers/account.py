"""/account: the account, its usage, and its API keys."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from config.pricing import RATE_WINDOW
from storage.tables.api_keys import IssuedKey, Key
from web.api.fields import KeyRotationFields, NewKeyFields, UsageQuery
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, json_response
from web.api.schemas import accounts as schemas
from web.api.times import parse_period, timestamp
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.serializers import usage_csv


class AccountResource(BaseHandler):
    """The account, its balance and its limits."""

    fixed_headers = NO_STORE

    @Operation(id="getAccount", tag="Account", responses=(json_response(schemas.Account),))
    async def get(self) -> None:
        """Get the account, its balance and its limits"""
        stored = await self.services.files.stored_bytes(self.client().id)
        self.respond(self._account(stored))

    def _account(self, stored: int) -> schemas.Account:
        account = self.client()
        return {
            "name": account.name,
            "email": account.email,
            "tier": account.tier.name,
            "credits_remaining": account.credits_remaining,
            "credits_total_purchased": account.credits_purchased,
            "credits_used_total": account.credits_used,
            "max_file_size": account.tier.max_file_size,
            "created_at": timestamp(account.created_at),
            "last_used_at": timestamp(account.last_used_at),
            "storage": {"stored_bytes": stored, "max_stored_bytes": account.tier.max_stored},
            "rate_limit": self._rate_limit(),
            "limits": self._limits(),
        }

    def _rate_limit(self) -> schemas.RateLimit:
        status = self.authorization.status
        return {
            "limit": status.limit,
            "window_seconds": RATE_WINDOW,
            "remaining": status.remaining,
            "reset": status.reset_unix,
        }

    def _limits(self) -> schemas.Limits:
        tier, settings = self.client().tier, self.services.settings
        return {
            "max_file_size": tier.max_file_size,
            "max_batch_files": settings.max_batch_files,
            "max_merge_files": self.services.registry.tools["pdf-merge"].inputs[-1],
            "max_concurrent": tier.max_concurrent,
            "file_retention_seconds": settings.file_retention_seconds,
        }


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
        period = self.query_fields(UsageQuery).period or parse_period(None, int(time.time()))
        report = await self.services.accounts.usage(self.client().id, period.start, period.end)
        self.set_header("Vary", "Accept")
        accept = self.request.headers.get("Accept", "")
        if "text/csv" in accept.lower() and not wants_json(accept):
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("X-Credits-Remaining", str(self.client().credits_remaining))
            self.write(usage_csv(report.by_day))
        else:
            times = {"start": timestamp(period.start), "end": timestamp(period.end)}
            self.respond({"period": period.name, **times, **asdict(report)})


class Keys(BaseHandler):
    """The account's API keys."""

    fixed_headers = NO_STORE

    @Operation(id="listKeys", tag="Account", responses=(json_response(schemas.Keys),))
    async def get(self) -> None:
        """List the valid API keys"""
        keys = await self.services.accounts.list_keys(self.client().id)
        self.respond({"keys": [_key(key) for key in keys], "total": len(keys)})

    @Operation(id="createKey", tag="Account", json=NewKeyFields, responses=(json_response(schemas.IssuedKey),))
    async def post(self) -> None:
        """Create an API key"""
        account = self.client()
        name = self.json_fields(NewKeyFields).name or account.name
        self.respond(_issued_key(await self.services.accounts.issue_key(account.id, name)))


class KeyResource(BaseHandler):
    """An API key."""

    fixed_headers = NO_STORE

    @Operation(id="revokeKey", tag="Account", responses=(json_response(schemas.RevokedKey),))
    async def delete(self, key_id: str) -> None:
        """Revoke an API key

        The last key cannot be revoked, only rotated.
        """
        await self.services.accounts.revoke_key(self.client().id, key_id)
        self.respond({"key_id": key_id, "revoked": True})


class KeyRotation(BaseHandler):
    """Replaces an API key, which stays valid for a grace period."""

    fixed_headers = NO_STORE

    @Operation(id="rotateKey", tag="Account", json=KeyRotationFields, responses=(json_response(schemas.RotatedKey),))
    async def post(self, key_id: str) -> None:
        """Replace an API key"""
        grace = self.json_fields(KeyRotationFields).grace_period_seconds
        issued = await self.services.accounts.rotate_key(self.client().id, key_id, grace)
        self.respond({**_issued_key(issued), "replaced_key_id": key_id, "grace_period_seconds": grace})


def _key(key: Key) -> schemas.Key:
    return {
        "key_id": key.id,
        "key_prefix": key.prefix,
        "name": key.name,
        "created_at": timestamp(key.created_at),
        "last_used_at": timestamp(key.last_used_at),
        "expires_at": timestamp(key.expires_at),
    }


def _issued_key(issued: IssuedKey) -> schemas.IssuedKey:
    return {"api_key": issued.text, **_key(issued.key), "message": "Store this API key safely. It is not shown again."}
