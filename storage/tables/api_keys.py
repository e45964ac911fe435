"""API keys: issue, authenticate, rotate, revoke.

A key is `cvd_live_` or `cvd_test_`, 32 random characters and a checksum of 6. Only its SHA-256 is stored. Requests with
a test key cost nothing.
"""

import hashlib
import re
import zlib
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from storage.database.transaction import Statement, Transaction, columns, lookup, reading, unsynced
from storage.errors import InvalidKey, LastKey, NotFound, TooManyKeys
from storage.field_types import KeyId, KeyPrefix, Name, Timestamp
from storage.ids import ALPHABET, is_id, new_id, random_text
from storage.tables import models
from storage.tables.accounts import StoredAccount

MAX_GRACE = 604_800  # seconds: 7 days
MAX_KEYS = 50  # valid keys of an account

Mode: TypeAlias = Literal["live", "test"]
"""Whether requests with a key are charged."""

_TEST_PREFIX = "cvd_test_"
_RANDOM = 32  # characters: 190 bits
_CHECKSUM = 6  # characters
_VISIBLE = 15  # characters at the beginning, which identify a key in lists
_FORM = re.compile(rf"cvd_(live|test)_[0-9A-Za-z]{{{_RANDOM + _CHECKSUM}}}")
_USE_INTERVAL = 60  # seconds between updates of `last_used_at`


@dataclass(frozen=True)
class Key:
    """An API key without its secret."""

    key_id: KeyId
    key_prefix: KeyPrefix
    name: Name
    created_at: Timestamp
    last_used_at: Timestamp | None = None
    expires_at: Annotated[
        Timestamp | None, Field(description="When the key expires, if it was rotated.", examples=[None])
    ] = None

    @property
    def mode(self) -> Mode:
        return "test" if self.key_prefix.startswith(_TEST_PREFIX) else "live"


@dataclass(frozen=True)
class IssuedKey:
    """A new key. `text` is the only copy of the key itself; the repr omits it."""

    key: Key
    text: str = field(repr=False)


ACCOUNT_COLUMNS = ", ".join(f"a.{column.column_name}" for column in columns(models.Account, StoredAccount))
"""The columns of the table `account a`, in the order of the fields of StoredAccount."""

_KEY_COLUMNS = ", ".join(f"k.{column.column_name}" for column in columns(models.Key, Key))
_SELECT = (
    f"SELECT {ACCOUNT_COLUMNS}, {_KEY_COLUMNS} FROM api_key k JOIN account a ON a.id = k.account"
    " WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)"
)
SELECT_BY_SHA256 = Statement(f"{_SELECT} AND k.sha256 = :sha256")
SELECT_VALID_KEY = Statement(
    "SELECT 1 FROM api_key WHERE id = :id AND account = :account"
    " AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
)


def make_key(mode: Mode = "live") -> str:
    """Returns the text of a new random key."""
    text = f"cvd_{mode}_{random_text(_RANDOM)}"
    return text + _checksum(text)


def parse_key(text: str) -> str:
    """Returns the SHA-256 of a key in hex. Raises InvalidKey if the form or the checksum is wrong."""
    if not _FORM.fullmatch(text) or _checksum(text[:-_CHECKSUM]) != text[-_CHECKSUM:]:
        raise InvalidKey
    return digest(text)


def digest(secret: str) -> str:
    """Returns the SHA-256 in hex. Keys and tokens are random and long enough to need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(transaction: Transaction, account: str, name: str, mode: Mode = "live") -> IssuedKey:
    """Creates another key for the owner of a key. Raises TooManyKeys."""
    _lock(transaction, account)
    if len(list_keys(transaction, account)) >= MAX_KEYS:
        raise TooManyKeys(MAX_KEYS)
    return issue(transaction, account, name, mode)


def issue(transaction: Transaction, account: str, name: str, mode: Mode = "live") -> IssuedKey:
    """Creates a key, whatever their number: it may be the only one that the owner of the account knows."""
    text = make_key(mode)
    key = Key(new_id("key"), text[:_VISIBLE], name, transaction.now)
    transaction.insert(models.Key.insert(**vars(key), account=account, sha256=digest(text)))
    return IssuedKey(key, text)


@lookup
def authenticate(transaction: Transaction, sha256: str) -> tuple[StoredAccount, Key]:
    """Returns the account and the key with this SHA-256. Raises InvalidKey.

    Only reads. The account may be unverified; callers check `verified_at`.
    """
    return _found(transaction.execute_statement(SELECT_BY_SHA256, sha256=sha256, now=transaction.now))


def is_use_due(key: Key, now: float) -> bool:
    """Whether a use of the key at this time is to be recorded: the first one, then one per minute."""
    return key.last_used_at is None or key.last_used_at + _USE_INTERVAL <= now


@unsynced
def record_use(transaction: Transaction, account: str, key: str) -> None:
    """Sets `last_used_at` of the key and its account to now, unless it was set less than a minute ago."""
    # The account first: `rotate` and `revoke` lock it before they change a key.
    for table, own in ((models.Account, models.Account.id == account), (models.Key, models.Key.key_id == key)):
        due = table.last_used_at.is_null() | (table.last_used_at <= transaction.now - _USE_INTERVAL)
        transaction.execute(table.update({table.last_used_at: transaction.now}).where(own & due))


def check_valid(transaction: Transaction, account: str, key: str) -> None:
    """Raises InvalidKey unless the key is a valid one of the account."""
    if not transaction.execute_statement(SELECT_VALID_KEY, id=key, account=account, now=transaction.now):
        raise InvalidKey


def rotate(transaction: Transaction, account: str, key_id: str, grace: int) -> IssuedKey:
    """Issues a replacement. The old key expires in `grace` seconds (0-604800) unless it expires earlier.

    Raises NotFound and TooManyKeys.
    """
    if not 0 <= grace <= MAX_GRACE:
        raise ValueError(f"grace must be 0 to {MAX_GRACE} seconds.")
    row = _own(transaction, account, key_id)
    ends = transaction.now + grace
    expires_at = ends if row.expires_at is None else min(ends, row.expires_at)
    transaction.execute(models.Key.update({models.Key.expires_at: expires_at}).where(models.Key.key_id == key_id))
    return add(transaction, account, row.name, "test" if row.key_prefix.startswith(_TEST_PREFIX) else "live")


def revoke(transaction: Transaction, account: str, key_id: str) -> None:
    """Revokes a key. Raises NotFound, or LastKey if no other live key without expiry is left."""
    _own(transaction, account, key_id)
    table = models.Key
    lasting = _valid(transaction.now) & table.expires_at.is_null() & ~table.key_prefix.startswith(_TEST_PREFIX)
    keys = transaction.values(Key, table.select(*columns(table, Key)).where((table.account == account) & lasting))
    if [key.key_id for key in keys] == [key_id]:
        raise LastKey
    transaction.execute(table.update({table.revoked_at: transaction.now}).where(table.key_id == key_id))


@reading
def list_keys(transaction: Transaction, account: str) -> tuple[Key, ...]:
    """Returns the account's valid keys, oldest first."""
    table = models.Key
    query = table.select(*columns(table, Key)).where((table.account == account) & _valid(transaction.now))
    return transaction.values(Key, query.order_by(table.created_at, table.key_id))


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
    own = (models.Key.account == account) & (models.Key.key_id == key_id) & _valid(transaction.now)
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


def _found(rows: list[tuple[Any, ...]]) -> tuple[StoredAccount, Key]:
    if not rows:
        raise InvalidKey
    (row,) = rows
    account_columns = len(fields(StoredAccount))
    return StoredAccount(*row[:account_columns]), Key(*row[account_columns:])
