"""Dashboard sessions: a random token in place of an API key, or of a link that was sent by email.

Only the SHA-256 of tokens is stored.
"""

import secrets
from dataclasses import fields

from storage.database.transaction import Statement, Transaction, lookup
from storage.errors import InvalidKey
from storage.tables import models
from storage.tables.accounts import StoredAccount
from storage.tables.api_keys import ACCOUNT_COLUMNS, authenticate, digest, record_use

LIFETIME = 43_200  # seconds: 12 hours

_TOKEN_BYTES = 32

SELECT_BY_SESSION = Statement(
    f"SELECT {ACCOUNT_COLUMNS}, s.api_key FROM dashboard_session s JOIN account a ON a.id = s.account"
    " LEFT JOIN api_key k ON k.id = s.api_key"
    " WHERE s.sha256 = :sha256 AND s.expires_at > :now AND (s.api_key IS NULL"
    " OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)))"
)


def begin(transaction: Transaction, sha256: str) -> tuple[str, StoredAccount]:
    """Starts a session for the API key with this SHA-256. Returns its token and the account.

    Raises InvalidKey, also for a test key: the owner of a session may do more.
    The account may be unverified; callers check `verified_at`.
    """
    account, key = authenticate(transaction, sha256)
    if key.mode == "test":
        raise InvalidKey("A test key opens no session. Use a live key.")
    record_use(transaction, account.id, key.key_id)
    return begin_without_key(transaction, account.id, key.key_id), account


def begin_without_key(transaction: Transaction, account: str, api_key: str | None = None) -> str:
    """Starts a session of the account, which ends with the API key if there is one. Returns its token."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    row = {
        "sha256": digest(token),
        "account": account,
        "api_key": api_key,
        "created_at": transaction.now,
        "expires_at": transaction.now + LIFETIME,
    }
    transaction.insert(models.DashboardSession.insert(row))
    return token


@lookup
def find(transaction: Transaction, token: str) -> tuple[StoredAccount, str | None]:
    """Returns the account of a session, and the id of the API key that it was opened with, if any.

    Raises InvalidKey if the session or its key has ended.
    """
    rows = transaction.execute_statement(SELECT_BY_SESSION, sha256=digest(token), now=transaction.now)
    if not rows:
        raise InvalidKey
    ((*account, key),) = rows
    assert len(account) == len(fields(StoredAccount))
    return StoredAccount(*account), key


def end(transaction: Transaction, token: str) -> None:
    """Ends the session. Does nothing if there is none."""
    table = models.DashboardSession
    transaction.execute(table.delete().where(table.sha256 == digest(token)))


def delete_expired(transaction: Transaction) -> int:
    """Deletes expired sessions. Returns their number."""
    return sum(
        transaction.execute(table.delete().where(table.expires_at <= transaction.now))
        for table in (models.DashboardSession, models.Session)
    )
