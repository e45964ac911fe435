"""/account: what stands in it, what it was used for, and its keys."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from config.pricing import RATE_WINDOW
from storage.api_keys import IssuedKey, Key
from web.api.fields import GRACE_PERIOD, KEY_NAME, PERIOD
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, described
from web.api.schemas import accounts as shapes
from web.api.times import period, timestamp
from web.http.bodies import JsonHandler
from web.http.handler import Handler
from web.http.responses import wants_json
from web.services.accounts import Account
from web.services.serializers import usage_csv


class AccountResource(Handler):
    """The account, its balance and its limits."""

    always = NO_STORE

    @Operation(id="getAccount", tag="Account", answers=(described(shapes.Account),))
    async def get(self) -> None:
        """See balance and limits"""
        self.reply(self._described(self.client()))

    def _described(self, account: Account) -> shapes.Account:
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
            "rate_limit": self._rate_limit(),
            "limits": self._limits(),
        }

    def _rate_limit(self) -> shapes.RateLimit:
        return {
            "limit": self._verdict.limit,
            "window_seconds": RATE_WINDOW,
            "remaining": self._verdict.remaining,
            "reset": self._verdict.reset_unix,
        }

    def _limits(self) -> shapes.Limits:
        tier, settings = self.client().tier, self.services.settings
        return {
            "max_file_size": tier.max_file_size,
            "max_batch_files": settings.max_batch_files,
            "max_merge_files": self.services.registry.tools["pdf-merge"].inputs[-1],
            "max_concurrent": tier.max_concurrent,
            "file_retention_seconds": settings.file_retention_seconds,
        }


class Usage(Handler):
    """What was converted in a period."""

    always = NO_STORE

    @Operation(
        id="getUsage",
        tag="Account",
        query=(PERIOD,),
        answers=(
            replace(described(shapes.Usage), headers=("Vary",)),
            Response(
                200, "With `Accept: text/csv` the rows of `by_day`.", media_types=("text/csv",), headers=("Vary",)
            ),
        ),
    )
    async def get(self) -> None:
        """See what was converted in a period

        Requests that were refused are not counted.
        """
        chosen = self.given()[PERIOD] or period(None, int(time.time()))
        report = await self.services.accounts.usage(self.client().id, chosen.start, chosen.end)
        self.set_header("Vary", "Accept")
        accept = self.request.headers.get("Accept", "")
        if "text/csv" in accept.lower() and not wants_json(accept):
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("X-Credits-Remaining", str(self.client().credits_remaining))
            self.write(usage_csv(report.by_day))
        else:
            times = {"start": timestamp(chosen.start), "end": timestamp(chosen.end)}
            self.reply({"period": chosen.name, **times, **asdict(report)})


class Keys(JsonHandler):
    """The keys that work, and new ones."""

    always = NO_STORE

    @Operation(id="listKeys", tag="Account", answers=(described(shapes.Keys),))
    async def get(self) -> None:
        """List the keys that work"""
        keys = await self.services.accounts.list_keys(self.client().id)
        self.reply({"keys": [_shown(key) for key in keys], "total": len(keys)})

    @Operation(id="createKey", tag="Account", json=(KEY_NAME,), answers=(described(shapes.IssuedKey),))
    async def post(self) -> None:
        """Make a further key"""
        account = self.client()
        called = self.given()[KEY_NAME] or account.name
        self.reply(_shown_once(await self.services.accounts.issue_key(account.id, called)))


class KeyResource(Handler):
    """A key, to be ended."""

    always = NO_STORE

    @Operation(id="revokeKey", tag="Account", answers=(described(shapes.RevokedKey),))
    async def delete(self, key_id: str) -> None:
        """End a key at once

        The last key that lasts can only be rotated.
        """
        await self.services.accounts.revoke_key(self.client().id, key_id)
        self.reply({"key_id": key_id, "revoked": True})


class KeyRotation(JsonHandler):
    """A new key for an old one, which goes on working for a while."""

    always = NO_STORE

    @Operation(id="rotateKey", tag="Account", json=(GRACE_PERIOD,), answers=(described(shapes.RotatedKey),))
    async def post(self, key_id: str) -> None:
        """Put a new key in the place of another"""
        grace = self.given()[GRACE_PERIOD]
        issued = await self.services.accounts.rotate_key(self.client().id, key_id, grace)
        self.reply({**_shown_once(issued), "replaced_key_id": key_id, "grace_period_seconds": grace})


def _shown(key: Key) -> shapes.Key:
    return {
        "key_id": key.id,
        "key_prefix": key.prefix,
        "name": key.name,
        "created_at": timestamp(key.created_at),
        "last_used_at": timestamp(key.last_used_at),
        "expires_at": timestamp(key.expires_at),
    }


def _shown_once(issued: IssuedKey) -> shapes.IssuedKey:
    message = "Keep the key in a safe place: it is not shown again."
    return {"api_key": issued.text, **_shown(issued.key), "message": message}
