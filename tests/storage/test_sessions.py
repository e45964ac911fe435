"""Dashboard sessions."""

import pytest

from storage.database import Database
from storage.errors import InvalidKey
from storage.tables import api_keys, models
from storage.tables.api_keys import digest
from tests.support.samples.storage import Clock, open_account


def begun(database: Database) -> tuple[str, str, str]:
    """Starts a session. Returns its token, account id and key id."""
    account = open_account(database)
    issued = database.run_blocking(api_keys.issue, account.id, "Key")
    token, found = database.run_blocking(api_keys.begin_session, digest(issued.text))
    assert found.id == account.id
    return token, account.id, issued.key.key_id


def owner(database: Database, token: str) -> str:
    return database.run_blocking(api_keys.find_session, token)[0].id


def test_a_token_authenticates_the_account(database: Database) -> None:
    token, account, key = begun(database)
    assert owner(database, token) == account
    assert database.run_blocking(api_keys.find_session, token)[1].key_id == key
    with pytest.raises(InvalidKey):
        owner(database, token + "0")


def test_only_the_sha256_of_a_token_is_stored(database: Database) -> None:
    token, _, _ = begun(database)
    (row,) = database.run_blocking(lambda transaction: transaction.all(models.Session.select()))
    assert token not in str(vars(row))


def test_a_wrong_key_starts_no_session(database: Database) -> None:
    with pytest.raises(InvalidKey):
        database.run_blocking(api_keys.begin_session, digest("none"))


def test_a_session_can_be_ended(database: Database) -> None:
    token, _, _ = begun(database)
    database.run_blocking(api_keys.end_session, token)
    database.run_blocking(api_keys.end_session, token)
    with pytest.raises(InvalidKey):
        owner(database, token)


def test_a_session_ends_with_its_key(database: Database) -> None:
    token, account, key = begun(database)
    database.run_blocking(api_keys.issue, account, "Another")
    database.run_blocking(api_keys.revoke, account, key)
    with pytest.raises(InvalidKey):
        owner(database, token)


def test_a_session_expires(database: Database, clock: Clock) -> None:
    token, account, _ = begun(database)
    clock.now += api_keys.SESSION_LIFETIME - 10
    assert owner(database, token) == account
    assert database.run_blocking(api_keys.delete_expired_sessions) == 0
    clock.now += 20
    with pytest.raises(InvalidKey):
        owner(database, token)
    assert database.run_blocking(api_keys.delete_expired_sessions) == 1
