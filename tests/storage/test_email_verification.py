"""Email verification."""

import asyncio
from dataclasses import fields

import pytest

from storage.database import Database
from storage.errors import NotFound
from storage.tables import accounts, api_keys, email_verification, ledger_audit, models
from storage.tables.api_keys import parse_key
from storage.tables.email_verification import Registration, Verified
from tests.support.samples.storage import Clock


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


def test_only_the_sha256_of_a_token_is_stored(database: Database) -> None:
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
    tokens = [
        (await database.run(email_verification.register, email, "n")).token for email in ("a@b.org", "A@B.org") * 5
    ]
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
