"""Dashboard sessions."""

import pytest

from storage.database import Database
from storage.errors import InvalidKey, NotFound
from storage.tables import accounts, api_keys, email_verification, models, sessions
from storage.tables.api_keys import digest
from tests.support.samples.storage import Clock, open_account


def begun(database: Database) -> tuple[str, str, str]:
    """Starts a session. Returns its token, account id and key id."""
    account = open_account(database)
    issued = database.run_blocking(api_keys.issue, account.id, "Key")
    token, found = database.run_blocking(sessions.begin, digest(issued.text))
    assert found.id == account.id
    return token, account.id, issued.key.key_id


def owner(database: Database, token: str) -> str:
    return database.run_blocking(sessions.find, token)[0].id


def test_a_token_authenticates_the_account(database: Database) -> None:
    token, account, key = begun(database)
    assert owner(database, token) == account
    assert database.run_blocking(sessions.find, token)[1] == key
    with pytest.raises(InvalidKey):
        owner(database, token + "0")


def test_only_the_sha256_of_a_token_is_stored(database: Database) -> None:
    token, _, _ = begun(database)
    (row,) = database.run_blocking(lambda transaction: transaction.all(models.DashboardSession.select()))
    assert token not in str(vars(row))


def test_a_wrong_key_starts_no_session(database: Database) -> None:
    with pytest.raises(InvalidKey):
        database.run_blocking(sessions.begin, digest("none"))


def test_a_session_can_be_ended(database: Database) -> None:
    token, _, _ = begun(database)
    database.run_blocking(sessions.end, token)
    database.run_blocking(sessions.end, token)
    with pytest.raises(InvalidKey):
        owner(database, token)


def test_a_session_ends_with_its_key(database: Database) -> None:
    token, account, key = begun(database)
    database.run_blocking(api_keys.issue, account, "Another")
    database.run_blocking(api_keys.revoke, account, key)
    with pytest.raises(InvalidKey):
        owner(database, token)


def test_a_session_ends_when_its_key_expires(database: Database, clock: Clock) -> None:
    token, account, key = begun(database)
    database.run_blocking(api_keys.rotate, account, key, 60)
    clock.now += 59
    assert owner(database, token) == account
    clock.now += 1
    with pytest.raises(InvalidKey):
        owner(database, token)


def test_a_session_expires(database: Database, clock: Clock) -> None:
    token, account, _ = begun(database)
    clock.now += sessions.LIFETIME - 10
    assert owner(database, token) == account
    assert database.run_blocking(sessions.delete_expired) == 0
    clock.now += 20
    with pytest.raises(InvalidKey):
        owner(database, token)
    assert database.run_blocking(sessions.delete_expired) == 1


def test_a_session_without_a_key_outlives_all_keys_but_not_its_account(database: Database) -> None:
    account = open_account(database)
    issued = database.run_blocking(api_keys.issue, account.id, "Key")
    token = database.run_blocking(sessions.begin_without_key, account.id)
    database.run_blocking(api_keys.rotate, account.id, issued.key.key_id, 0)
    assert database.run_blocking(sessions.find, token) == (database.run_blocking(accounts.get, account.id), None)
    database.run_blocking(accounts.delete, account.email)
    with pytest.raises(InvalidKey):
        owner(database, token)


class TestLinks:
    """Sessions that begin with a token sent by email."""

    def test_a_token_works_once(self, database: Database, clock: Clock) -> None:
        account = database.run_blocking(accounts.create, "Ada@example.org", "Ada", free_credits=0, verified=False)
        requested = database.run_blocking(email_verification.request_sign_in, " ADA@example.org ")
        assert requested is not None
        assert requested.email == "Ada@example.org"
        assert owner(database, database.run_blocking(email_verification.sign_in, requested.token)) == account.id
        assert database.run_blocking(accounts.get, account.id).verified_at == int(clock.now)
        with pytest.raises(NotFound):
            database.run_blocking(email_verification.sign_in, requested.token)

    def test_a_token_expires(self, database: Database, clock: Clock) -> None:
        requested = database.run_blocking(email_verification.request_sign_in, open_account(database).email)
        assert requested is not None
        clock.now += email_verification.SIGN_IN_VALIDITY
        with pytest.raises(NotFound):
            database.run_blocking(email_verification.sign_in, requested.token)
        assert database.run_blocking(email_verification.delete_expired) == 1

    def test_an_unknown_address_gets_no_token_but_leaves_the_same_row(self, database: Database) -> None:
        assert database.run_blocking(email_verification.request_sign_in, "nobody@example.org") is None
        (row,) = database.run_blocking(lambda transaction: transaction.all(models.Verification.select()))
        assert (row.purpose, row.account, len(row.sha256)) == ("sign_in", None, 64)

    def test_tokens_are_for_one_purpose(self, database: Database) -> None:
        """A link to sign in gives no API key, and one to see an API key begins no session."""
        email = open_account(database).email
        requested = database.run_blocking(email_verification.request_sign_in, email)
        registered = database.run_blocking(email_verification.register, email, "Name")
        assert requested is not None
        with pytest.raises(NotFound):
            database.run_blocking(email_verification.verify, requested.token, free_credits=50)
        with pytest.raises(NotFound):
            database.run_blocking(email_verification.sign_in, registered.token)
        assert database.run_blocking(email_verification.sign_in, requested.token)
        assert database.run_blocking(email_verification.verify, registered.token, free_credits=50)
