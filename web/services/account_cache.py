"""AccountCache: the accounts of recently used API keys, so that most conversions need no query to authenticate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.accounts import Account
from storage.api_keys import Key

_LIFETIME = 10.0  # seconds that a key revoked by another process may still be found
_CAPACITY = 10_000  # keys


@dataclass(frozen=True)
class _Entry:
    account: Account
    key: Key
    expires_at: float


class AccountCache:
    """Accounts and keys by the SHA-256 of the key. `clock` returns Unix time in seconds.

    Holds only verified accounts that have bought credits: nothing about them changes that decides on a request, but
    the balance and the validity of the key. Both are checked again when credits are reserved.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.version = 0  # changes with every `remove`
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    def get(self, sha256: str) -> tuple[Account, Key] | None:
        """Returns the account and the key, or None."""
        entry = self._entries.get(sha256)
        if entry is None or entry.expires_at <= self._clock():
            return None
        return entry.account, entry.key

    def put(self, sha256: str, account: Account, key: Key, version: int) -> None:
        """Adds an account as it was read when `version` was current; ignored if keys have been removed since."""
        if version != self.version or account.verified_at is None or not account.purchased:
            return
        expires_at = self._clock() + _LIFETIME
        if key.expires_at is not None:
            expires_at = min(expires_at, key.expires_at)
        self._entries.pop(sha256, None)
        if len(self._entries) >= _CAPACITY:
            del self._entries[next(iter(self._entries))]  # the oldest
        self._entries[sha256] = _Entry(account, key, expires_at)

    def remove(self, key_id: str) -> None:
        """Removes the key with this id."""
        self.version += 1
        for sha256 in [sha256 for sha256, entry in self._entries.items() if entry.key.id == key_id]:
            del self._entries[sha256]
