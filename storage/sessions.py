"""Sessions: a key was shown once, and its owner is known by a token for a while."""

from __future__ import annotations

import secrets

from storage import api_keys, models
from storage.accounts import Account
from storage.api_keys import Key, digest
from storage.errors import InvalidKey
from storage.transaction import Transaction

LIFETIME = 43_200  # seconds
_TOKEN_BYTES = 32


def begin(transaction: Transaction, sha256: str) -> tuple[str, Account]:
    """A token for whoever has the key of that SHA-256, and the account. Raises InvalidKey.

    The token is the only copy. The account need not be verified: `verified_at` tells.
    """
    account, key = api_keys.authenticate(transaction, sha256)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    row = {
        "sha256": digest(token),
        "api_key": key.id,
        "created_at": transaction.now,
        "expires_at": transaction.now + LIFETIME,
    }
    transaction.add(models.Session.insert(row))
    return token, account


def find(transaction: Transaction, token: str) -> tuple[Account, Key]:
    """Whose session it is. Raises InvalidKey where it is over, or its key works no more."""
    table = models.Session
    running = (table.sha256 == digest(token)) & (table.expires_at > transaction.now)
    row = transaction.first(table.select().where(running))
    if row is None:
        raise InvalidKey
    return api_keys.by_key_id(transaction, row.api_key)


def end(transaction: Transaction, token: str) -> None:
    """Ends the session, if there is one."""
    table = models.Session
    transaction.change(table.delete().where(table.sha256 == digest(token)))


def sweep(transaction: Transaction) -> int:
    """Forgets sessions that are over; says how many."""
    table = models.Session
    return transaction.change(table.delete().where(table.expires_at <= transaction.now))
