"""Accounts: authentication by API key or session, management of API keys, balance and usage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from config.pricing import TIERS, Tier
from storage import accounts, api_keys, ledger, sessions, usage
from storage.api_keys import IssuedKey, Key, parse_key
from storage.database import Database
from storage.errors import InvalidKey
from storage.usage import UsageReport
from web.api.errors import KeyNotVerified

SESSION_LIFETIME = sessions.LIFETIME  # seconds

_BEARER = re.compile(r"Bearer +(\S+) *", re.IGNORECASE)


@dataclass(frozen=True)
class Account:
    """The authenticated account of a request, as of its arrival, and the id of the API key used."""

    id: str
    email: str
    name: str
    tier: Tier
    credits_remaining: int
    credits_purchased: int
    credits_used: int
    verified: bool
    created_at: int
    last_used_at: int | None
    key_id: str

    @classmethod
    def from_storage(cls, account: accounts.Account, key: Key) -> Account:
        """Combines the stored account and the key. Any purchase makes the tier `paid` permanently."""
        return cls(
            id=account.id,
            email=account.email,
            name=account.name,
            tier=TIERS["paid" if account.purchased > 0 else "free"],
            credits_remaining=account.balance,
            credits_purchased=account.purchased,
            credits_used=account.used,
            verified=account.verified_at is not None,
            created_at=account.created_at,
            last_used_at=account.last_used_at,
            key_id=key.id,
        )

    @property
    def rate_limit_key(self) -> str:
        """The key of the account's counter in the rate limiter."""
        return f"account:{self.id}"


class Accounts:
    """Authenticates requests, manages sessions and API keys, and reports balance and usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def authenticate(self, authorization: str | None) -> Account:
        """Returns the account of an Authorization header, verified or not. Raises InvalidKey and DatabaseBusy."""
        sha256 = _bearer_digest(authorization)
        return Account.from_storage(*await self._database.run_with_timeout(api_keys.authenticate, sha256))

    async def sign_in(self, key: str) -> str:
        """Starts a session and returns its token. Raises InvalidKey and KeyNotVerified.

        The session ends with `sign_out`, after SESSION_LIFETIME, or when the API key stops working.
        """
        token, account = await self._database.run(sessions.begin, parse_key(key))
        if account.verified_at is None:
            await self.sign_out(token)
            raise KeyNotVerified
        return token

    async def session_account(self, token: str) -> Account:
        """Returns the account of a session. Raises InvalidKey."""
        return Account.from_storage(*await self._database.run(sessions.find, token))

    async def sign_out(self, token: str) -> None:
        """Ends a session. Does nothing for an unknown token."""
        await self._database.run(sessions.end, token)

    async def list_keys(self, account_id: str) -> tuple[Key, ...]:
        """Returns the active API keys of the account, oldest first."""
        return await self._database.run(api_keys.list_keys, account_id)

    async def issue_key(self, account_id: str, name: str) -> IssuedKey:
        """Creates an API key."""
        return await self._database.run(api_keys.issue, account_id, name)

    async def rotate_key(self, account_id: str, key_id: str, grace: int) -> IssuedKey:
        """Replaces an API key, which keeps working for `grace` seconds. Raises NotFound."""
        return await self._database.run(api_keys.rotate, account_id, key_id, grace)

    async def revoke_key(self, account_id: str, key_id: str) -> None:
        """Revokes an API key at once. Raises NotFound, and LastKey for the last key without an expiry."""
        await self._database.run(api_keys.revoke, account_id, key_id)

    async def balance(self, account_id: str) -> int:
        """Returns the current balance in credits."""
        return await self._database.run(ledger.balance, account_id)

    async def usage(self, account_id: str, start: int, end: int) -> UsageReport:
        """Returns the usage from `start` up to, not including, `end` (Unix time)."""
        return await self._database.run(usage.report, account_id, start, end)


def _bearer_digest(authorization: str | None) -> str:
    """The SHA-256, in hex, of the API key in an Authorization header. Raises InvalidKey."""
    bearer = _BEARER.fullmatch(authorization or "")
    if bearer is None:
        raise InvalidKey
    return parse_key(bearer[1])
