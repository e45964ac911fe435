"""Who asks, by the key that the request shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from config.pricing import TIERS, Tier
from storage import accounts, api_keys, sessions
from storage.api_keys import Key, parse_key
from storage.database import Database
from storage.errors import InvalidKey
from web.api.errors import KeyNotVerified

_BEARER = re.compile(r"Bearer +(\S+) *", re.IGNORECASE)


@dataclass(frozen=True)
class Account:
    """Whoever a request is made for, as it stands when the request arrives, and the key it was made with."""

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

    @property
    def counted_as(self) -> str:
        """By what its requests are counted."""
        return f"account:{self.id}"


class Accounts:
    """Knows accounts by their keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def authenticate(self, authorization: str | None) -> Account:
        """The account behind an Authorization header, verified or not. Raises InvalidKey and DatabaseBusy."""
        return account_of(*await self._database.run_with_timeout(api_keys.authenticate, key_digest(authorization)))


def key_digest(authorization: str | None) -> str:
    """The SHA-256 of the key in the header. Raises InvalidKey."""
    bearer = _BEARER.fullmatch(authorization or "")
    if bearer is None:
        raise InvalidKey
    return parse_key(bearer[1])


def account_of(account: accounts.Account, key: Key) -> Account:
    """The account as handlers know it. Whoever has bought credits is of the paid tier for good."""
    return Account(
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


LIFETIME = sessions.LIFETIME  # seconds


class Sessions:
    """Begins with a key, and ends when it is told to, after LIFETIME, or with the key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, key: str) -> str:
        """The token of a new session. Raises InvalidKey or KeyNotVerified."""
        token, account = await self._database.run(sessions.begin, parse_key(key))
        if account.verified_at is None:
            await self.end(token)
            raise KeyNotVerified("The account's e-mail address is not verified: open the link in the mail.")
        return token

    async def account(self, token: str) -> Account:
        """Whose session it is. Raises InvalidKey."""
        return account_of(*await self._database.run(sessions.find, token))

    async def end(self, token: str) -> None:
        """Ends the session, if there is one."""
        await self._database.run(sessions.end, token)
