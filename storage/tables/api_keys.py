"""API keys: issue, authenticate, rotate, revoke.

A key is `cvd_live_`, 32 random characters and a checksum of 6. Only its SHA-256 is stored.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, field, fields
from typing import Any

from storage.database import Transaction
from storage.database.sql_statements import SELECT_KEY_BY_ID, SELECT_KEY_BY_SHA256, SELECT_VALID_KEY
from storage.errors import InvalidKey, LastKey, NotFound, TooManyKeys
from storage.ids import ALPHABET, is_id, new_id, random_text
from storage.tables import models
from storage.tables.accounts import Account

MAX_GRACE = 604_800  # seconds: 7 days
MAX_KEYS = 50  # valid keys of an account

_PREFIX = "cvd_live_"
_RANDOM = 32  # characters: 190 bits
_CHECKSUM = 6  # characters
_VISIBLE = 6  # random characters that the visible prefix includes
_FORM = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{_RANDOM + _CHECKSUM}}}")
_USE_INTERVAL = 60  # seconds between updates of `last_used_at`


@dataclass(frozen=True)
class Key:
    """A valid API key without its text. `expires_at` is set once the key has been rotated."""

    id: str
    prefix: str
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None


@dataclass(frozen=True)
class IssuedKey:
    """A new key. `text` is the only copy of the key itself; the repr omits it."""

    key: Key
    text: str = field(repr=False)


def make_key() -> str:
    """Returns the text of a new random key."""
    text = _PREFIX + random_text(_RANDOM)
    return text + _checksum(text)


def parse_key(text: str) -> str:
    """Returns the SHA-256 of a key in hex. Raises InvalidKey if the form or the checksum is wrong."""
    if not _FORM.fullmatch(text) or _checksum(text[:-_CHECKSUM]) != text[-_CHECKSUM:]:
        raise InvalidKey
    return digest(text)


def visible_prefix(text: str) -> str:
    """Returns the beginning of a key, which identifies it in lists."""
    return text[: len(_PREFIX) + _VISIBLE]


def digest(secret: str) -> str:
    """Returns the SHA-256 in hex. Keys and tokens are random and long enough to need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(transaction: Transaction, account: str, name: str) -> IssuedKey:
    """Creates another key for the owner of a key. Raises TooManyKeys."""
    _lock(transaction, account)
    if len(list_keys(transaction, account)) >= MAX_KEYS:
        raise TooManyKeys(MAX_KEYS)
    return issue(transaction, account, name)


def issue(transaction: Transaction, account: str, name: str) -> IssuedKey:
    """Creates a key, whatever their number: it may be the only one that the owner of the account knows."""
    text = make_key()
    row = {
        "id": new_id("key"),
        "account": account,
        "sha256": digest(text),
        "prefix": visible_prefix(text),
        "name": name,
        "created_at": transaction.now,
    }
    transaction.insert(models.Key.insert(row))
    return IssuedKey(_from_row(models.Key(**row)), text)


def authenticate(transaction: Transaction, sha256: str) -> tuple[Account, Key]:
    """Returns the account and the key with this SHA-256. Raises InvalidKey.

    Only reads. The account may be unverified; callers check `verified_at`.
    """
    return _found(transaction.execute_statement(SELECT_KEY_BY_SHA256, sha256=sha256, now=transaction.now))


def is_use_due(key: Key, now: float) -> bool:
    """Whether a use of the key at this time is to be recorded: the first one, then one per minute."""
    return key.last_used_at is None or key.last_used_at + _USE_INTERVAL <= now


def record_use(transaction: Transaction, account: str, key: str) -> None:
    """Sets `last_used_at` of the key and its account to now, unless it was set less than a minute ago."""
    # The account first: `rotate` and `revoke` lock it before they change a key.
    for table, own_id in ((models.Account, account), (models.Key, key)):
        due = table.last_used_at.is_null() | (table.last_used_at <= transaction.now - _USE_INTERVAL)
        transaction.execute(table.update({table.last_used_at: transaction.now}).where((table.id == own_id) & due))


def check_valid(transaction: Transaction, account: str, key: str) -> None:
    """Raises InvalidKey unless the key is a valid one of the account."""
    if not transaction.execute_statement(SELECT_VALID_KEY, id=key, account=account, now=transaction.now):
        raise InvalidKey


def by_key_id(transaction: Transaction, key_id: str) -> tuple[Account, Key]:
    """Returns the account and the key with this id. Raises InvalidKey."""
    return _found(transaction.execute_statement(SELECT_KEY_BY_ID, id=key_id, now=transaction.now))


def rotate(transaction: Transaction, account: str, key_id: str, grace: int) -> IssuedKey:
    """Issues a replacement. The old key expires in `grace` seconds (0-604800) unless it expires earlier.

    Raises NotFound and TooManyKeys.
    """
    if not 0 <= grace <= MAX_GRACE:
        raise ValueError(f"grace must be 0 to {MAX_GRACE} seconds.")
    row = _own(transaction, account, key_id)
    ends = transaction.now + grace
    expires_at = ends if row.expires_at is None else min(ends, row.expires_at)
    transaction.execute(models.Key.update({models.Key.expires_at: expires_at}).where(models.Key.id == row.id))
    return add(transaction, account, row.name)


def revoke(transaction: Transaction, account: str, key_id: str) -> None:
    """Revokes a key. Raises NotFound, or LastKey if no other key without expiry is left."""
    row = _own(transaction, account, key_id)
    table = models.Key
    others = (table.account == account) & (table.id != row.id) & _valid(transaction.now) & table.expires_at.is_null()
    if row.expires_at is None and transaction.first(table.select().where(others)) is None:
        raise LastKey
    transaction.execute(table.update({table.revoked_at: transaction.now}).where(table.id == row.id))


def list_keys(transaction: Transaction, account: str) -> tuple[Key, ...]:
    """Returns the account's valid keys, oldest first."""
    table = models.Key
    query = table.select().where((table.account == account) & _valid(transaction.now))
    return tuple(_from_row(row) for row in transaction.all(query.order_by(table.created_at, table.id)))


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def _own(transaction: Transaction, account: str, key_id: str) -> models.Key:
    """Returns a valid key of the account and locks all its keys. Raises NotFound."""
    _lock(transaction, account)
    own = (models.Key.account == account) & (models.Key.id == key_id) & _valid(transaction.now)
    row = transaction.first(models.Key.select().where(own)) if is_id("key", key_id) else None
    if row is None:
        raise NotFound("key")
    return row


def _lock(transaction: Transaction, account: str) -> None:
    """Keeps two requests from adding the last key that is allowed, or from revoking the last two keys."""
    transaction.select_for_update(models.Account.select().where(models.Account.id == account))


def _valid(now: int) -> Any:
    table = models.Key
    return table.revoked_at.is_null() & (table.expires_at.is_null() | (table.expires_at > now))


def _found(rows: list[tuple[Any, ...]]) -> tuple[Account, Key]:
    if not rows:
        raise InvalidKey
    (row,) = rows
    account_columns = len(fields(Account))
    return Account(*row[:account_columns]), Key(*row[account_columns:])


def _from_row(row: models.Key) -> Key:
    return Key(row.id, row.prefix, row.name, row.created_at, row.last_used_at, row.expires_at)
