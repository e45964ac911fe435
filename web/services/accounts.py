"""Accounts: authentication by API key or session, management of API keys, balance and usage."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from config.pricing import TIERS, Tier
from storage.database import Database
from storage.errors import InvalidKey
from storage.tables import accounts, api_keys, ledger, sessions, usage
from storage.tables.api_keys import IssuedKey, Key, parse_key
from storage.tables.usage import UsageReport
from web.api.errors import KeyNotVerified

log = logging.getLogger("convertd.accounts")

SESSION_LIFETIME = sessions.LIFETIME  # seconds

_CACHE_LIFETIME = 10.0  # seconds that a key revoked by another process may still be found
_CACHE_CAPACITY = 10_000  # keys

_BEARER = re.compile(r"Bearer +(\S+) *", re.IGNORECASE)


@dataclass(frozen=True)
class Account:
    """The authenticated account of a request, as of its arrival, and the id of the API key used.

    `client` is the network address of a client that uses the account of all trial conversions, else empty.
    """

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
    client: str = ""

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

    @property
    def isolation_key(self) -> str:
        """Identifies the client to the executor: clients with different keys share no worker process."""
        return f"{self.id} {self.client}" if self.client else self.id


class Accounts:
    """Authenticates requests, manages sessions and API keys, and reports balance and usage.

    `clock` returns Unix time in seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._cache = AccountCache(clock)
        self._uses: dict[str, asyncio.Task[None]] = {}  # pending writes of `last_used_at`, by key id

    async def authenticate(self, authorization: str | None, *, cached: bool = False) -> Account:
        """Returns the account of an Authorization header, verified or not. Raises InvalidKey and DatabaseBusy.

        With `cached`, the balance may be outdated, and a key that another process revoked may pass for 10 seconds.
        """
        sha256 = _bearer_digest(authorization)
        found = self._cache.get(sha256) if cached else None
        if found is None:
            version = self._cache.version
            found = self._record_use(*await self._database.read(api_keys.authenticate, sha256))
            self._cache.put(sha256, *found, version)
        return Account.from_storage(*found)

    def _record_use(self, account: accounts.Account, key: Key) -> tuple[accounts.Account, Key]:
        """Updates `last_used_at` where that is due. No request waits for the write."""
        now = self._clock()
        if not api_keys.is_use_due(key, now):
            return account, key
        if key.id not in self._uses:
            use = asyncio.create_task(self._database.run(api_keys.record_use, account.id, key.id))
            self._uses[key.id] = use
            use.add_done_callback(partial(self._on_use_recorded, key.id))
        return replace(account, last_used_at=int(now)), replace(key, last_used_at=int(now))

    def _on_use_recorded(self, key_id: str, use: asyncio.Task[None]) -> None:
        del self._uses[key_id]
        if not use.cancelled() and use.exception() is not None:
            log.warning("the last use of a key could not be recorded", exc_info=use.exception())

    async def close(self) -> None:
        """Waits for pending writes."""
        while self._uses:
            await asyncio.wait(self._uses.values())

    async def sign_in(self, key: str) -> str:
        """Starts a session and returns its token. Raises InvalidKey, KeyNotVerified and DatabaseBusy.

        The session ends with `sign_out`, after SESSION_LIFETIME, or when the API key stops working.
        """
        token, account = await self._database.run_with_timeout(sessions.begin, parse_key(key))
        if account.verified_at is None:
            await self.sign_out(token)
            raise KeyNotVerified
        return token

    async def session_account(self, token: str) -> Account:
        """Returns the account of a session. Raises InvalidKey."""
        return Account.from_storage(*await self._database.read(sessions.find, token))

    async def sign_out(self, token: str) -> None:
        """Ends a session. Does nothing for an unknown token."""
        await self._database.run(sessions.end, token)

    async def list_keys(self, account_id: str) -> tuple[Key, ...]:
        """Returns the active API keys of the account, oldest first."""
        if self._uses:  # so that the list shows the use by this request
            await asyncio.wait(self._uses.values())
        return await self._database.read(api_keys.list_keys, account_id)

    async def issue_key(self, account_id: str, name: str) -> IssuedKey:
        """Creates an API key. Raises TooManyKeys."""
        return await self._database.run(api_keys.add, account_id, name)

    async def owns_key(self, account_id: str, key: str) -> bool:
        """Returns whether the text is a valid API key of the account."""
        try:
            account, _ = await self._database.read(api_keys.authenticate, parse_key(key))
        except InvalidKey:
            return False
        return account.id == account_id

    async def rotate_key(self, account_id: str, key_id: str, grace: int) -> IssuedKey:
        """Replaces an API key, which keeps working for `grace` seconds. Raises NotFound and TooManyKeys."""
        try:
            return await self._database.run(api_keys.rotate, account_id, key_id, grace)
        finally:
            self._cache.remove(key_id)

    async def revoke_key(self, account_id: str, key_id: str) -> None:
        """Revokes an API key at once. Raises NotFound, and LastKey for the last key without an expiry."""
        try:
            await self._database.run(api_keys.revoke, account_id, key_id)
        finally:
            self._cache.remove(key_id)

    async def balance(self, account_id: str) -> int:
        """Returns the current balance in credits."""
        return await self._database.read(ledger.balance, account_id)

    async def usage(self, account_id: str, start: int, end: int) -> UsageReport:
        """Returns the usage from `start` up to, not including, `end` (Unix time)."""
        return await self._database.read(usage.report, account_id, start, end)


@dataclass(frozen=True)
class _CacheEntry:
    account: accounts.Account
    key: Key
    expires_at: float


class AccountCache:
    """Accounts and keys by the SHA-256 of recently used keys, so that most conversions need no query to authenticate.

    Contains only verified accounts that have bought credits: whether their requests are allowed depends only on the
    balance and the validity of the key, and both are checked again when credits are reserved. `clock` returns Unix time
    in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.version = 0  # changes with every `remove`
        self._clock = clock
        self._entries: dict[str, _CacheEntry] = {}

    def get(self, sha256: str) -> tuple[accounts.Account, Key] | None:
        """Returns the account and the key, or None."""
        entry = self._entries.get(sha256)
        if entry is None or entry.expires_at <= self._clock():
            return None
        return entry.account, entry.key

    def put(self, sha256: str, account: accounts.Account, key: Key, version: int) -> None:
        """Adds an account as it was read when `version` was current; ignored if keys have been removed since."""
        if version != self.version or account.verified_at is None or not account.purchased:
            return
        expires_at = self._clock() + _CACHE_LIFETIME
        if key.expires_at is not None:
            expires_at = min(expires_at, key.expires_at)
        self._entries.pop(sha256, None)
        if len(self._entries) >= _CACHE_CAPACITY:
            del self._entries[next(iter(self._entries))]  # the oldest
        self._entries[sha256] = _CacheEntry(account, key, expires_at)

    def remove(self, key_id: str) -> None:
        """Removes the key with this id."""
        self.version += 1
        for sha256 in [sha256 for sha256, entry in self._entries.items() if entry.key.id == key_id]:
            del self._entries[sha256]


def _bearer_digest(authorization: str | None) -> str:
    """The SHA-256, in hex, of the API key in an Authorization header. Raises InvalidKey."""
    bearer = _BEARER.fullmatch(authorization or "")
    if bearer is None:
        raise InvalidKey
    return parse_key(bearer[1])
