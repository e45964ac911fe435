"""/account: what stands in it, what it was used for, and its keys."""

from __future__ import annotations

import time
from dataclasses import asdict

from config.tariff import RATE_WINDOW
from storage import keyring, usage
from storage.keyring import MAX_GRACE, IssuedKey, Key
from web.bodies import JsonHandler
from web.errors import InvalidParameter
from web.fields import name, wants_json
from web.services.descriptions import usage_csv
from web.services.periods import period, timestamp

_DEFAULT_GRACE = 86_400  # seconds


class _Private(JsonHandler):
    """What no cache may keep."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")


class AccountResource(_Private):
    """The account, its balance and its limits."""

    async def get(self) -> None:
        account = self.client()
        self.reply(
            {
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
        )

    def _rate_limit(self) -> dict[str, int]:
        return {
            "limit": self._verdict.limit,
            "window_seconds": RATE_WINDOW,
            "remaining": self._verdict.remaining,
            "reset": self._verdict.reset_unix,
        }

    def _limits(self) -> dict[str, int]:
        tier, settings = self.client().tier, self.services.settings
        return {
            "max_file_size": tier.max_file_size,
            "max_batch_files": settings.max_batch_files,
            "max_merge_files": self.services.registry.tools["pdf-merge"].inputs[-1],
            "max_concurrent": tier.max_concurrent,
            "file_retention_seconds": settings.file_retention_seconds,
        }


class Usage(_Private):
    """What was converted in a period."""

    async def get(self) -> None:
        chosen = period(self.get_query_argument("period", None), int(time.time()))
        report = await self.services.database.run(usage.report, self.client().id, chosen.start, chosen.end)
        self.set_header("Vary", "Accept")
        accept = self.request.headers.get("Accept", "")
        if "text/csv" in accept.lower() and not wants_json(accept):
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("X-Credits-Remaining", str(self.client().credits_remaining))
            self.write(usage_csv(report.by_day))
        else:
            times = {"start": timestamp(chosen.start), "end": timestamp(chosen.end)}
            self.reply({"period": chosen.name, **times, **asdict(report)})


class Keys(_Private):
    """The keys that work, and new ones."""

    async def get(self) -> None:
        keys = await self.services.database.run(keyring.list_keys, self.client().id)
        self.reply({"keys": [_shown(key) for key in keys], "total": len(keys)})

    async def post(self) -> None:
        account, wanted = self.client(), self.body().get("name")
        called = account.name if wanted is None else name(wanted)
        self.reply(_shown_once(await self.services.database.run(keyring.issue, account.id, called)))


class KeyResource(_Private):
    """A key, to be ended."""

    async def delete(self, key_id: str) -> None:
        await self.services.database.run(keyring.revoke, self.client().id, key_id)
        self.reply({"key_id": key_id, "revoked": True})


class KeyRotation(_Private):
    """A new key for an old one, which goes on working for a while."""

    async def post(self, key_id: str) -> None:
        grace = _grace(self.body().get("grace_period_seconds", _DEFAULT_GRACE))
        issued = await self.services.database.run(keyring.rotate, self.client().id, key_id, grace)
        self.reply({**_shown_once(issued), "replaced_key_id": key_id, "grace_period_seconds": grace})


def _grace(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, int) and whole and 0 <= value <= MAX_GRACE:
        return value
    message = f"grace_period_seconds must be an integer from 0 to {MAX_GRACE}."
    reason = "out_of_range" if whole else "not_an_integer"
    details = {"min": 0, "max": MAX_GRACE}
    raise InvalidParameter(message, reason=reason, param="grace_period_seconds", details=details)


def _shown(key: Key) -> dict[str, object]:
    return {
        "key_id": key.id,
        "key_prefix": key.prefix,
        "name": key.name,
        "created_at": timestamp(key.created_at),
        "last_used_at": timestamp(key.last_used_at),
        "expires_at": timestamp(key.expires_at),
    }


def _shown_once(issued: IssuedKey) -> dict[str, object]:
    message = "Keep the key in a safe place: it is not shown again."
    return {"api_key": issued.text, **_shown(issued.key), "message": message}
