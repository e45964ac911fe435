"""Dashboard sessions: a random token in place of an API key, valid for 12 hours."""

from __future__ import annotations

import secrets

from storage.database import Transaction
from storage.errors import InvalidKey
from storage.tables import api_keys, models
from storage.tables.accounts import Account
from storage.tables.api_keys import Key, digest

LIFETIME = 43_200  # seconds
_TOKEN_BYTES = 32


def begin(transaction: Transaction, sha256: str) -> tuple[str, Account]:
    """Starts a session for the key with this SHA-256. Returns its token and the account. Raises InvalidKey.

    Only the SHA-256 of the token is stored. The account may be unverified; callers check `verified_at`.
    """
    account, key = api_keys.authenticate(transaction, sha256)
    api_keys.record_use(transaction, account.id, key.id)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    row = {
        "sha256": digest(token),
        "api_key": key.id,
        "created_at": transaction.now,
        "expires_at": transaction.now + LIFETIME,
    }
    transaction.insert(models.Session.insert(row))
    return token, account


def find(transaction: Transaction, token: str) -> tuple[Account, Key]:
    """Returns the account and the key of a session. Raises InvalidKey if the session or its key has ended."""
    table = models.Session
    active = (table.sha256 == digest(token)) & (table.expires_at > transaction.now)
    row = transaction.first(table.select().where(active))
    if row is None:
        raise InvalidKey
    return api_keys.by_key_id(transaction, row.api_key)


def end(transaction: Transaction, token: str) -> None:
    """Ends the session. Does nothing if there is none."""
    table = models.Session
    transaction.execute(table.delete().where(table.sha256 == digest(token)))


def delete_expired(transaction: Transaction) -> int:
    """Deletes expired sessions. Returns their number."""
    table = models.Session
    return transaction.execute(table.delete().where(table.expires_at <= transaction.now))
