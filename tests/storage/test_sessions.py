"""Dashboard sessions, email verification, and random ids."""

import asyncio
from dataclasses import fields

import pytest

from storage.database import Database
from storage.errors import InvalidKey, NotFound
from storage.tables import accounts, api_keys, email_verification, ledger_audit, models, sessions
from storage.tables.api_keys import digest, parse_key
from storage.tables.email_verification import Registration, Verified
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


def register(database: Database, email: str = "ada@example.org", name: str = "Engine") -> Registration:
    return database.run_blocking(email_verification.register, email, name)


def verify(database: Database, token: str) -> Verified:
    return database.run_blocking(email_verification.verify, token, free_credits=50)


def test_a_token_creates_an_account_and_a_key(database: Database, clock: Clock) -> None:
    begun = register(database, "Ada@example.org")
    assert (begun.purpose, begun.email, begun.name) == ("register", "Ada@example.org", "Engine")
    assert begun.expires_at == int(clock.now) + 86_400
    assert database.run_blocking(accounts.find, begun.email) is None
    verified = verify(database, begun.token)
    assert (verified.purpose, verified.account.email) == ("register", "Ada@example.org")
    assert verified.account.credits_remaining == 50
    assert verified.account.verified_at == int(clock.now)
    account, key = database.run_blocking(api_keys.authenticate, parse_key(verified.issued.text))
    assert (account.id, key.key_id) == (verified.account.id, verified.issued.key.key_id)


def test_only_the_sha256_of_the_token_of_an_email_is_stored(database: Database) -> None:
    begun = register(database)
    assert len(bytes.fromhex(begun.token)) == 32
    rows = database.run_blocking(lambda transaction: transaction.rows(models.Verification.select()))
    assert len(rows) == 1
    assert begun.token not in str(rows)
    assert begun.token not in repr(begun)


def test_a_known_address_is_treated_like_a_new_one(database: Database) -> None:
    """Neither the return value nor the rows written reveal which address has an account."""

    def rows() -> list[models.Verification]:
        return database.run_blocking(lambda transaction: transaction.all(models.Verification.select()))

    database.run_blocking(accounts.create, "known@example.org", "Known", free_credits=50)
    known = register(database, "KNOWN@example.org", "Somebody else")
    new = register(database, "new@example.org")
    for field in fields(Registration):
        assert type(getattr(known, field.name)) is type(getattr(new, field.name))
    assert (len(known.token), known.expires_at) == (len(new.token), new.expires_at)
    assert len(rows()) == 2


def test_a_known_address_receives_a_key_but_no_credits(database: Database) -> None:
    account = database.run_blocking(accounts.create, "Known@example.org", "Known", free_credits=50)
    first = database.run_blocking(api_keys.issue, account.id, "first")
    begun = register(database, "KNOWN@example.org", "Somebody else")
    assert (begun.purpose, begun.email, begun.name) == ("replace", "Known@example.org", "Known")
    verified = verify(database, begun.token)
    assert (verified.purpose, verified.account) == ("replace", account)
    for text in (first.text, verified.issued.text):
        assert database.run_blocking(api_keys.authenticate, parse_key(text))[0].id == account.id


def test_a_token_verifies_an_unverified_account(database: Database) -> None:
    made = database.run_blocking(accounts.create, "a@b.org", "n", free_credits=50, verified=False)
    verified = verify(database, register(database, "a@b.org").token)
    assert (verified.account.id, verified.account.credits_remaining) == (made.id, 50)
    assert verified.account.verified_at is not None


async def test_a_token_works_once_under_concurrency(database: Database) -> None:
    begun = await database.run(email_verification.register, "a@b.org", "n")
    attempts = (database.run(email_verification.verify, begun.token, free_credits=50) for _ in range(20))
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [*["NotFound"] * 19, "Verified"]


@pytest.mark.both_databases
async def test_registrations_of_one_address_share_an_account(database: Database) -> None:
    tokens = [(await database.run(email_verification.register, mail, "n")).token for mail in ("a@b.org", "A@B.org") * 5]
    attempts = (database.run(email_verification.verify, token, free_credits=50) for token in tokens)
    verified = await asyncio.gather(*attempts)
    assert sorted(one.purpose for one in verified) == ["register", *["replace"] * 9]
    account = await database.run(accounts.get, verified[0].account.id)
    assert ({one.account.id for one in verified}, account.credits_remaining) == ({account.id}, 50)
    assert await database.run(ledger_audit.check) == ()


def test_a_token_works_for_24_hours(database: Database, clock: Clock) -> None:
    late, in_time = register(database, "late@b.org"), register(database, "in-time@b.org")
    clock.now += 86_399
    verify(database, in_time.token)
    clock.now += 1
    with pytest.raises(NotFound) as caught:
        verify(database, late.token)
    assert caught.value.code == "not_found"


def test_unknown_tokens_are_not_found(database: Database) -> None:
    register(database)
    for token in ("0" * 64, "", "\0"):
        with pytest.raises(NotFound):
            verify(database, token)


def test_an_error_leaves_the_token_unused(database: Database) -> None:
    begun = register(database)
    with pytest.raises(ValueError, match="must be positive"):
        database.run_blocking(email_verification.verify, begun.token, free_credits=-1)
    assert verify(database, begun.token).account.credits_remaining == 50


def test_expired_tokens_are_deleted(database: Database, clock: Clock) -> None:
    register(database)
    clock.now += 86_400
    kept = register(database, "b@b.org")
    assert database.run_blocking(email_verification.delete_expired) == 1
    verify(database, kept.token)
