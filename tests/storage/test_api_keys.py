"""The keys of an account."""

from __future__ import annotations

import asyncio

import pytest

from storage import accounts, api_keys, models
from storage.accounts import Account
from storage.api_keys import IssuedKey, digest
from storage.database import Database
from storage.errors import InvalidKey, LastKey, NotFound
from storage.ids import new_id
from tests.support.storage_samples import Clock, open_account


def issue(database: Database, account: Account, name: str = "a key") -> IssuedKey:
    return database.run_blocking(api_keys.issue, account.id, name)


def works(database: Database, issued: IssuedKey) -> bool:
    try:
        database.run_blocking(api_keys.authenticate, digest(issued.text))
    except InvalidKey:
        return False
    return True


def ids(database: Database, account: Account) -> list[str]:
    return [key.id for key in database.run_blocking(api_keys.list_keys, account.id)]


def test_a_key_leads_to_its_account(database: Database) -> None:
    account, other = open_account(database), open_account(database)
    issued = issue(database, account)
    issue(database, other)
    found, key = database.run_blocking(api_keys.authenticate, digest(issued.text))
    assert (found.id, key.id, key.name) == (account.id, issued.key.id, "a key")
    assert issued.text.startswith(key.prefix)


def test_only_the_sha256_is_kept_and_nothing_is_printed(database: Database) -> None:
    issued = issue(database, open_account(database))
    rows = database.run_blocking(lambda transaction: transaction.tuples(models.Key.select()))
    assert len(rows) == 1
    assert issued.text not in str(rows)
    assert digest(issued.text) in rows[0]
    assert issued.text not in repr(issued)


def test_an_unknown_key_is_invalid(database: Database) -> None:
    with pytest.raises(InvalidKey):
        database.run_blocking(api_keys.authenticate, digest("cvd_live_of_nobody"))


def test_use_is_noted_once_a_minute(database: Database, clock: Clock) -> None:
    account = open_account(database)
    issued = issue(database, account)
    start = int(clock.now)
    noted = []
    for seconds in (0, 59, 60, 61, 130):
        clock.now = start + seconds
        found, key = database.run_blocking(api_keys.authenticate, digest(issued.text))
        assert found.last_used_at == key.last_used_at
        noted.append((key.last_used_at or 0) - start)
    assert noted == [0, 0, 60, 60, 130]


def test_keys_are_listed_for_their_account(database: Database, clock: Clock) -> None:
    account, other = open_account(database), open_account(database)
    issue(database, other)
    issued = []
    for name in ("first", "second"):
        issued.append(issue(database, account, name).key)
        clock.now += 1
    assert list(database.run_blocking(api_keys.list_keys, account.id)) == issued


def test_a_rotated_key_works_until_its_grace_is_over(database: Database, clock: Clock) -> None:
    account = open_account(database)
    old = issue(database, account, "server")
    new = database.run_blocking(api_keys.rotate, account.id, old.key.id, 100)
    assert new.key.name == "server"
    assert (works(database, old), works(database, new)) == (True, True)
    assert set(ids(database, account)) == {old.key.id, new.key.id}
    clock.now += 99
    assert works(database, old)
    clock.now += 1
    assert (works(database, old), works(database, new)) == (False, True)
    assert ids(database, account) == [new.key.id]


def test_without_grace_the_old_key_ends_at_once(database: Database) -> None:
    account = open_account(database)
    old = issue(database, account)
    new = database.run_blocking(api_keys.rotate, account.id, old.key.id, 0)
    assert (works(database, old), works(database, new)) == (False, True)
    with pytest.raises(NotFound):
        database.run_blocking(api_keys.rotate, account.id, old.key.id, 0)


def test_rotating_again_does_not_prolong_a_key(database: Database, clock: Clock) -> None:
    account = open_account(database)
    old = issue(database, account)
    for grace in (10, api_keys.MAX_GRACE):
        database.run_blocking(api_keys.rotate, account.id, old.key.id, grace)
    clock.now += 10
    assert not works(database, old)


@pytest.mark.parametrize("grace", [-1, api_keys.MAX_GRACE + 1])
def test_a_grace_has_its_limits(database: Database, grace: int) -> None:
    account = open_account(database)
    issued = issue(database, account)
    with pytest.raises(ValueError, match="604800"):
        database.run_blocking(api_keys.rotate, account.id, issued.key.id, grace)
    assert ids(database, account) == [issued.key.id]


def test_a_key_is_revoked_at_once(database: Database) -> None:
    account = open_account(database)
    first, second = issue(database, account), issue(database, account)
    database.run_blocking(api_keys.revoke, account.id, first.key.id)
    assert (works(database, first), works(database, second)) == (False, True)
    with pytest.raises(NotFound):
        database.run_blocking(api_keys.revoke, account.id, first.key.id)


def test_the_last_key_cannot_be_revoked(database: Database) -> None:
    account = open_account(database)
    issue(database, open_account(database))
    only = issue(database, account)
    with pytest.raises(LastKey) as caught:
        database.run_blocking(api_keys.revoke, account.id, only.key.id)
    assert (caught.value.code, caught.value.reason) == ("invalid_parameter", "last_key")
    assert works(database, only)


def test_a_key_in_its_grace_is_none_that_lasts(database: Database) -> None:
    account = open_account(database)
    old = issue(database, account)
    new = database.run_blocking(api_keys.rotate, account.id, old.key.id, 1000)
    with pytest.raises(LastKey):
        database.run_blocking(api_keys.revoke, account.id, new.key.id)
    database.run_blocking(api_keys.revoke, account.id, old.key.id)
    assert ids(database, account) == [new.key.id]


@pytest.mark.both_databases
async def test_of_the_last_two_one_stays_whoever_revokes(database: Database) -> None:
    for _ in range(10):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=0)
        keys = [(await database.run(api_keys.issue, account.id, "n")).key.id for _ in range(2)]
        attempts = (database.run(api_keys.revoke, account.id, key) for key in keys)
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["LastKey", "NoneType"]


@pytest.mark.parametrize("key_id", ["key_\0", "", "key_" + "a" * 22])
def test_keys_of_others_and_of_nobody_are_missing(database: Database, key_id: str) -> None:
    account, other = open_account(database), open_account(database)
    issue(database, account)
    foreign = issue(database, other).key.id
    issue(database, other)
    for missing in (key_id, foreign):
        with pytest.raises(NotFound):
            database.run_blocking(api_keys.revoke, account.id, missing)
        with pytest.raises(NotFound):
            database.run_blocking(api_keys.rotate, account.id, missing, 0)
    assert len(ids(database, other)) == 2
