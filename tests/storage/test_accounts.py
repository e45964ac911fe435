"""Accounts: one per address, free credits once."""

from __future__ import annotations

import asyncio

import pytest

from storage import accounts, ledger_audit, models
from storage.database import Database
from storage.errors import EmailTaken, NotFound
from tests.support.storage_samples import Clock


def test_a_new_account(database: Database, clock: Clock) -> None:
    account = database.run_blocking(accounts.create, " Ada@Example.org ", "Engine", free_credits=50)
    assert (account.email, account.name, account.balance) == ("Ada@Example.org", "Engine", 50)
    assert (account.held, account.purchased, account.used, account.last_used_at) == (0, 0, 0, None)
    assert account.verified_at == account.created_at == int(clock.now)
    assert database.run_blocking(accounts.get, account.id) == account
    assert database.run_blocking(accounts.find, "ada@EXAMPLE.org") == account


def test_an_account_may_be_unverified(database: Database, clock: Clock) -> None:
    account = database.run_blocking(accounts.create, "a@b.org", "Engine", free_credits=0, verified=False)
    assert (account.verified_at, account.balance) == (None, 0)
    for _ in range(2):
        database.run_blocking(accounts.mark_verified, account.id)
        clock.now += 10
    assert database.run_blocking(accounts.get, account.id).verified_at == int(clock.now) - 20


@pytest.mark.parametrize("spelling", ["ÄDA@EXAMPLE.ORG", "A\u0308da@example.org", "äda@example.org "])
def test_addresses_are_unique_regardless_of_case(database: Database, spelling: str) -> None:
    database.run_blocking(accounts.create, "Äda@example.org", "Engine", free_credits=50)
    with pytest.raises(EmailTaken):
        database.run_blocking(accounts.create, spelling, "Engine", free_credits=50)
    assert len(database.run_blocking(lambda transaction: transaction.all(models.Account.select()))) == 1


@pytest.mark.both_databases
async def test_concurrent_creations_of_one_address(database: Database) -> None:
    attempts = (database.run(accounts.create, "a@b.org", "Engine", free_credits=50) for _ in range(20))
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Account", *["EmailTaken"] * 19]
    entries = await database.run(lambda transaction: transaction.all(models.Entry.select()))
    assert [(entry.kind, entry.amount) for entry in entries] == [("grant", 50)]


def test_credits_are_granted_by_address(database: Database) -> None:
    database.run_blocking(accounts.create, "a@b.org", "Engine", free_credits=50)
    assert database.run_blocking(accounts.grant, "A@B.org", 5) == 55
    assert database.run_blocking(accounts.grant, "a@b.org", 5, ref="birthday") == 60
    assert database.run_blocking(accounts.grant, "a@b.org", 5, ref="birthday") == 60
    assert database.run_blocking(ledger_audit.check) == ()
    with pytest.raises(NotFound):
        database.run_blocking(accounts.grant, "b@b.org", 5)


def test_unknown_accounts_are_not_found(database: Database) -> None:
    assert database.run_blocking(accounts.find, "a@b.org") is None
    with pytest.raises(NotFound) as caught:
        database.run_blocking(accounts.get, "acct_of_nobody")
    assert caught.value.code == "not_found"
