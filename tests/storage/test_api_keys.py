"""API keys: their text form; issue, authenticate, rotate, revoke."""

import asyncio
import hashlib
import re
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.database import Database
from storage.errors import InvalidKey, LastKey, NotFound, TooManyKeys
from storage.ids import ALPHABET, is_id, new_id, random_text
from storage.tables import accounts, api_keys, models
from storage.tables.accounts import StoredAccount
from storage.tables.api_keys import IssuedKey, Key, digest, make_key, parse_key
from tests.support.samples.storage import Clock, open_account


def issue(database: Database, account: StoredAccount, name: str = "a key") -> IssuedKey:
    return database.run_blocking(api_keys.issue, account.id, name)


def works(database: Database, issued: IssuedKey) -> bool:
    try:
        database.run_blocking(api_keys.authenticate, digest(issued.text))
    except InvalidKey:
        return False
    return True


def ids(database: Database, account: StoredAccount) -> list[str]:
    return [key.key_id for key in database.run_blocking(api_keys.list_keys, account.id)]


def test_the_form_of_a_key() -> None:
    key = make_key()
    assert re.fullmatch(r"cvd_live_[0-9A-Za-z]{38}", key)
    assert parse_key(key) == hashlib.sha256(key.encode()).hexdigest()


def test_keys_are_unique() -> None:
    assert len({make_key() for _ in range(1000)}) == 1000


@given(st.integers(9, 46), st.sampled_from(ALPHABET))
def test_the_checksum_detects_typing_errors(place: int, character: str) -> None:
    key = make_key()
    mistyped = key[:place] + character + key[place + 1 :]
    if mistyped != key:
        with pytest.raises(InvalidKey):
            parse_key(mistyped)


@given(st.text(max_size=60) | st.text(ALPHABET, max_size=60).map("cvd_live_".__add__))
def test_other_texts_are_invalid(text: str) -> None:
    with pytest.raises(InvalidKey):
        parse_key(text)


@pytest.mark.parametrize("change", [str.lower, str.strip, lambda key: key + "\n", lambda key: key[:-1], "x".__add__])
def test_altered_keys_are_invalid(change: object) -> None:
    assert callable(change)
    key = make_key()
    if change(key) != key:
        with pytest.raises(InvalidKey):
            parse_key(change(key))


def test_ids() -> None:
    assert is_id("key", new_id("key"))
    assert not is_id("hold", new_id("key"))
    malformed = ("", "key_", "key_\0" + "a" * 21, new_id("key") + "\n", new_id("key") + "0")
    assert not any(is_id("key", text) for text in malformed)


@pytest.mark.parametrize("length", [1, 22, 64])
def test_random_characters_are_uniform(length: int) -> None:
    texts = [random_text(length) for _ in range(62 * 400 // length)]
    assert {len(text) for text in texts} == {length}
    counts = Counter("".join(texts))
    assert set(counts) == set(ALPHABET)
    assert all(280 < count < 520 for count in counts.values())  # 400 ± 6 standard deviations


def authenticated(database: Database, issued: IssuedKey) -> tuple[StoredAccount, Key]:
    return database.run_blocking(api_keys.authenticate, digest(issued.text))


def test_a_key_authenticates_its_account(database: Database) -> None:
    account, other = open_account(database), open_account(database)
    issued = issue(database, account)
    issue(database, other)
    found, key = database.run_blocking(api_keys.authenticate, digest(issued.text))
    assert (found.id, key.key_id, key.name) == (account.id, issued.key.key_id, "a key")
    assert key.key_prefix == issued.text[:15]


def test_only_the_sha256_is_stored(database: Database) -> None:
    issued = issue(database, open_account(database))
    rows = database.run_blocking(lambda transaction: transaction.rows(models.Key.select()))
    assert len(rows) == 1
    assert issued.text not in str(rows)
    assert digest(issued.text) in rows[0]
    assert issued.text not in repr(issued)


def test_an_unknown_key_is_invalid(database: Database) -> None:
    with pytest.raises(InvalidKey):
        database.run_blocking(api_keys.authenticate, digest("cvd_live_of_nobody"))


def test_last_use_is_updated_once_a_minute(database: Database, clock: Clock) -> None:
    account = open_account(database)
    issued = issue(database, account)
    start = int(clock.now)
    recorded, due = [], []
    for seconds in (0, 59, 60, 61, 130):
        clock.now = start + seconds
        due.append(api_keys.is_use_due(authenticated(database, issued)[1], clock.now))
        database.run_blocking(api_keys.record_use, account.id, issued.key.key_id)
        found, key = authenticated(database, issued)
        assert found.last_used_at == key.last_used_at
        recorded.append((key.last_used_at or 0) - start)
    assert recorded == [0, 0, 60, 60, 130]
    assert due == [True, False, True, False, True]


def test_a_key_is_valid_for_its_account_until_it_is_revoked(database: Database) -> None:
    account, other = open_account(database), open_account(database)
    issued = issue(database, account)
    issue(database, account)
    database.run_blocking(api_keys.check_valid, account.id, issued.key.key_id)
    with pytest.raises(InvalidKey):
        database.run_blocking(api_keys.check_valid, other.id, issued.key.key_id)
    database.run_blocking(api_keys.revoke, account.id, issued.key.key_id)
    with pytest.raises(InvalidKey):
        database.run_blocking(api_keys.check_valid, account.id, issued.key.key_id)


def test_keys_are_listed_for_their_account(database: Database, clock: Clock) -> None:
    account, other = open_account(database), open_account(database)
    issue(database, other)
    issued = []
    for name in ("first", "second"):
        issued.append(issue(database, account, name).key)
        clock.now += 1
    assert list(database.run_blocking(api_keys.list_keys, account.id)) == issued


def test_a_rotated_key_is_valid_during_its_grace_period(database: Database, clock: Clock) -> None:
    account = open_account(database)
    old = issue(database, account, "server")
    new = database.run_blocking(api_keys.rotate, account.id, old.key.key_id, 100)
    assert new.key.name == "server"
    assert (works(database, old), works(database, new)) == (True, True)
    assert set(ids(database, account)) == {old.key.key_id, new.key.key_id}
    clock.now += 99
    assert works(database, old)
    clock.now += 1
    assert (works(database, old), works(database, new)) == (False, True)
    assert ids(database, account) == [new.key.key_id]


@pytest.mark.parametrize("end", [partial(api_keys.rotate, grace=0), api_keys.revoke], ids=["rotated", "revoked"])
def test_a_key_that_is_rotated_without_grace_or_revoked_is_invalid(database: Database, end: Any) -> None:
    account = open_account(database)
    old, other = issue(database, account), issue(database, account)
    new = database.run_blocking(end, account.id, old.key.key_id) or other
    assert [works(database, key) for key in (old, other, new)] == [False, True, True]
    with pytest.raises(NotFound):
        database.run_blocking(end, account.id, old.key.key_id)


def test_a_second_rotation_does_not_extend_a_key(database: Database, clock: Clock) -> None:
    account = open_account(database)
    old = issue(database, account)
    for grace in (10, api_keys.MAX_GRACE):
        database.run_blocking(api_keys.rotate, account.id, old.key.key_id, grace)
    clock.now += 10
    assert not works(database, old)


@pytest.mark.parametrize("grace", [-1, api_keys.MAX_GRACE + 1])
def test_grace_periods_out_of_range(database: Database, grace: int) -> None:
    account = open_account(database)
    issued = issue(database, account)
    with pytest.raises(ValueError, match="604800"):
        database.run_blocking(api_keys.rotate, account.id, issued.key.key_id, grace)
    assert ids(database, account) == [issued.key.key_id]


def test_the_last_key_cannot_be_revoked(database: Database) -> None:
    account = open_account(database)
    issue(database, open_account(database))
    only = issue(database, account)
    with pytest.raises(LastKey) as caught:
        database.run_blocking(api_keys.revoke, account.id, only.key.key_id)
    assert (caught.value.code, caught.value.reason) == ("invalid_parameter", "last_key")
    assert works(database, only)


def test_a_rotated_key_does_not_count_as_a_remaining_key(database: Database) -> None:
    account = open_account(database)
    old = issue(database, account)
    new = database.run_blocking(api_keys.rotate, account.id, old.key.key_id, 1000)
    with pytest.raises(LastKey):
        database.run_blocking(api_keys.revoke, account.id, new.key.key_id)
    database.run_blocking(api_keys.revoke, account.id, old.key.key_id)
    assert ids(database, account) == [new.key.key_id]


@pytest.mark.both_databases
async def test_concurrent_revocations_leave_one_key(database: Database) -> None:
    for _ in range(10):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=0)
        keys = [(await database.run(api_keys.issue, account.id, "n")).key.key_id for _ in range(2)]
        attempts = (database.run(api_keys.revoke, account.id, key) for key in keys)
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["LastKey", "NoneType"]


@pytest.mark.parametrize("key_id", ["key_\0", "", "key_" + "a" * 22])
def test_foreign_and_unknown_keys_are_not_found(database: Database, key_id: str) -> None:
    account, other = open_account(database), open_account(database)
    issue(database, account)
    foreign = issue(database, other).key.key_id
    issue(database, other)
    for missing in (key_id, foreign):
        with pytest.raises(NotFound):
            database.run_blocking(api_keys.revoke, account.id, missing)
        with pytest.raises(NotFound):
            database.run_blocking(api_keys.rotate, account.id, missing, 0)
    assert len(ids(database, other)) == 2


def test_the_number_of_keys_is_limited(database: Database) -> None:
    account = open_account(database)
    first = database.run_blocking(api_keys.add, account.id, "first")
    for _ in range(api_keys.MAX_KEYS - 1):
        last = database.run_blocking(api_keys.add, account.id, "another")
    with pytest.raises(TooManyKeys):
        database.run_blocking(api_keys.add, account.id, "one more")
    with pytest.raises(TooManyKeys):
        database.run_blocking(api_keys.rotate, account.id, first.key.key_id, 60)
    assert works(database, first)
    replaced = database.run_blocking(api_keys.rotate, account.id, first.key.key_id, 0)
    assert (works(database, first), works(database, replaced)) == (False, True)
    assert works(database, database.run_blocking(api_keys.issue, account.id, "from an email"))
    database.run_blocking(api_keys.revoke, account.id, last.key.key_id)
    database.run_blocking(api_keys.revoke, account.id, replaced.key.key_id)
    database.run_blocking(api_keys.add, account.id, "again")
