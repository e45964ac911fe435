"""The text of API keys: `cvd_live_`, 32 random characters, 6 of checksum."""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, field, fields, replace
from typing import Any

from peewee import Model

from storage import models
from storage.accounts import Account
from storage.errors import InvalidKey, LastKey, NotFound
from storage.ids import ALPHABET, is_id, new_id, random_text
from storage.prepared import Prepared
from storage.transaction import Transaction

_PREFIX = "cvd_live_"
_RANDOM = 32  # characters: 190 bits
_CHECKSUM = 6
_SHOWN = 6  # characters of the random part that may be seen later
_FORM = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{_RANDOM + _CHECKSUM}}}")


def make_key() -> str:
    """A new key. Whoever gets it is the only one to have it: it is stored as its SHA-256."""
    text = _PREFIX + random_text(_RANDOM)
    return text + _checksum(text)


def parse_key(text: str) -> str:
    """The SHA-256, in hex, of a key. Raises InvalidKey, without a look at the database, for what is no key."""
    if not _FORM.fullmatch(text) or _checksum(text[:-_CHECKSUM]) != text[-_CHECKSUM:]:
        raise InvalidKey
    return digest(text)


def shown_prefix(text: str) -> str:
    """The beginning of a key, by which its owner can tell it from others."""
    return text[: len(_PREFIX) + _SHOWN]


def digest(secret: str) -> str:
    """The SHA-256, in hex. Keys and tokens are random and long enough to need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


MAX_GRACE = 604_800  # seconds: 7 days

_USE_INTERVAL = 60  # seconds between two notes of when a key was used


@dataclass(frozen=True)
class Key:
    """A key that works, without its secret. One with `expires_at` has been replaced and works until then."""

    id: str
    prefix: str
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None


@dataclass(frozen=True)
class IssuedKey:
    """A new key. `text` is the key itself, which cannot be had again; it is kept out of the repr."""

    key: Key
    text: str = field(repr=False)


def authenticate(transaction: Transaction, sha256: str) -> tuple[Account, Key]:
    """Whose key it is, by the SHA-256 that `parse_key` gives. Raises InvalidKey.

    The account need not be verified: `verified_at` tells. When it was used is noted once a minute at most.
    """
    account, key = _holder(transaction.ask(_BY_SHA256, sha256=sha256, now=transaction.now))
    if key.last_used_at is None or key.last_used_at + _USE_INTERVAL <= transaction.now:
        _note_use(transaction, account.id, key.id)
        used: dict[str, Any] = {"last_used_at": transaction.now}
        account, key = replace(account, **used), replace(key, **used)
    return account, key


def by_key_id(transaction: Transaction, key_id: str) -> tuple[Account, Key]:
    """Whose key it is, by its id. Raises InvalidKey where it works no more. This is no use of the key."""
    return _holder(transaction.ask(_BY_ID, id=key_id, now=transaction.now))


def issue(transaction: Transaction, account: str, name: str) -> IssuedKey:
    """Makes a key."""
    text = make_key()
    row = {
        "id": new_id("key"),
        "account": account,
        "sha256": digest(text),
        "prefix": shown_prefix(text),
        "name": name,
        "created_at": transaction.now,
    }
    transaction.add(models.Key.insert(row))
    return IssuedKey(_value(models.Key(**row)), text)


def list_keys(transaction: Transaction, account: str) -> tuple[Key, ...]:
    """The keys that work, oldest first."""
    table = models.Key
    query = table.select().where((table.account == account) & _works(transaction.now))
    return tuple(_value(row) for row in transaction.all(query.order_by(table.created_at, table.id)))


def rotate(transaction: Transaction, account: str, key_id: str, grace: int) -> IssuedKey:
    """Replaces a key, which works for `grace` seconds (0-604800) from now, or as long as it was to. Raises Missing."""
    if not 0 <= grace <= MAX_GRACE:
        raise ValueError(f"A grace period is 0 to {MAX_GRACE} seconds.")
    row = _own(transaction, account, key_id)
    ends = transaction.now + grace
    expires_at = ends if row.expires_at is None else min(ends, row.expires_at)
    transaction.change(models.Key.update({models.Key.expires_at: expires_at}).where(models.Key.id == row.id))
    return issue(transaction, account, row.name)


def revoke(transaction: Transaction, account: str, key_id: str) -> None:
    """Ends a key at once. Raises Missing, or LastKey where no other key would last."""
    row = _own(transaction, account, key_id)
    table = models.Key
    others = (table.account == account) & (table.id != row.id) & _works(transaction.now) & table.expires_at.is_null()
    if row.expires_at is None and transaction.first(table.select().where(others)) is None:
        raise LastKey
    transaction.change(table.update({table.revoked_at: transaction.now}).where(table.id == row.id))


def _own(transaction: Transaction, account: str, key_id: str) -> models.Key:
    """A key of the account that works. The account's other keys stay as they are until the transaction ends."""
    transaction.locked(models.Account.select().where(models.Account.id == account))
    mine = (models.Key.account == account) & (models.Key.id == key_id) & _works(transaction.now)
    row = transaction.first(models.Key.select().where(mine)) if is_id("key", key_id) else None
    if row is None:
        raise NotFound("key")
    return row


def _works(now: Any) -> Any:
    table = models.Key
    return table.revoked_at.is_null() & (table.expires_at.is_null() | (table.expires_at > now))


def _note_use(transaction: Transaction, account: str, key: str) -> None:
    now = transaction.now
    transaction.change(models.Key.update({models.Key.last_used_at: now}).where(models.Key.id == key))
    transaction.change(models.Account.update({models.Account.last_used_at: now}).where(models.Account.id == account))


def _holders(which: Any, now: Any) -> Any:
    """The accounts with the keys of these that work."""
    key, account = models.Key, models.Account
    columns = (*_columns(account, Account), *_columns(key, Key))
    return key.select(*columns).join(account, on=(key.account == account.id)).where(which & _works(now))


_BY_SHA256 = Prepared(lambda given: _holders(models.Key.sha256 == given("sha256"), given("now")))
_BY_ID = Prepared(lambda given: _holders(models.Key.id == given("id"), given("now")))


def _columns(table: type[Model], value: type[Account | Key]) -> list[Any]:
    return [getattr(table, field.name) for field in fields(value)]


def _holder(rows: list[tuple[Any, ...]]) -> tuple[Account, Key]:
    if not rows:
        raise InvalidKey
    (row,) = rows
    values = len(fields(Account))
    return Account(*row[:values]), Key(*row[values:])


def _value(row: models.Key) -> Key:
    return Key(row.id, row.prefix, row.name, row.created_at, row.last_used_at, row.expires_at)
