"""Races within one process and between several. Two deliberately broken ledgers must be detected."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from storage.database import Database, Transaction
from storage.errors import NoCredits
from storage.ids import new_id
from storage.tables import accounts, ledger, ledger_audit, models
from tests.support.samples.storage import OWNER, open_account
from tests.support.servers.storage_processes import StorageProcess, race

pytestmark = pytest.mark.both_databases

Attempt = Callable[[Database, str], Awaitable[object]]


async def reserve(database: Database, account: str) -> None:
    await database.run(ledger.reserve, account, 1, OWNER, 60)


async def reserve_by_read_and_write(database: Database, account: str) -> None:
    """A broken ledger: reads the balance, waits, then writes it."""

    def write(transaction: Transaction, balance: int) -> None:
        changes = {"credits_remaining": balance - 1, "credits_held": models.Account.credits_held + 1}
        transaction.execute(models.Account.update(changes).where(models.Account.id == account))

    balance = await database.run(ledger.balance, account)
    if balance < 1:
        raise NoCredits(balance, 1)
    await database.run(write, balance)


async def purchase(database: Database, account: str) -> None:
    await database.run(ledger.credit, account, "purchase", 500, f"checkout of {account}")


async def purchase_by_check_and_insert(database: Database, account: str) -> None:
    """A broken ledger: checks whether a purchase is recorded, then inserts it with a new ref."""
    seen = models.Entry.select().where((models.Entry.account == account) & (models.Entry.kind == "purchase"))
    if not await database.run(lambda transaction: transaction.all(seen)):
        await database.run(ledger.credit, account, "purchase", 500, new_id("ref"))


async def last_credits(database: Database, attempt: Attempt, rounds: int) -> set[int]:
    """Returns how many of 50 concurrent calls got an account's last credit, as a set over all rounds."""
    winners = set()
    for _ in range(rounds):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=1)
        results = await asyncio.gather(*(attempt(database, account.id) for _ in range(50)), return_exceptions=True)
        assert all(result is None or isinstance(result, NoCredits) for result in results)
        winners.add(results.count(None))
    return winners


async def purchases(database: Database, attempt: Attempt, rounds: int) -> set[int]:
    """Returns the balance after 8 concurrent reports of one purchase, as a set over all rounds."""
    balances = set()
    for _ in range(rounds):
        account = await database.run(accounts.create, f"{new_id('a')}@b.org", "n", free_credits=0)
        await asyncio.gather(*(attempt(database, account.id) for _ in range(8)))
        balances.add(await database.run(ledger.balance, account.id))
    return balances


async def test_the_last_credit_is_held_once(database: Database) -> None:
    assert await last_credits(database, reserve, rounds=25) == {1}
    assert await database.run(ledger_audit.check) == ()


async def test_a_purchase_is_credited_once(database: Database) -> None:
    assert await purchases(database, purchase, rounds=25) == {500}
    assert await database.run(ledger_audit.check) == ()


async def test_a_read_before_write_race_is_detected(database: Database) -> None:
    assert await last_credits(database, reserve_by_read_and_write, rounds=3) != {1}
    assert await database.run(ledger_audit.check) != ()


async def test_a_check_before_insert_race_is_detected(database: Database) -> None:
    assert await purchases(database, purchase_by_check_and_insert, rounds=3) != {500}


def test_four_processes_open_an_empty_database_and_race(empty_url: str) -> None:
    racers = [StorageProcess(race, empty_url) for _ in range(4)]
    try:
        assert [racer.answer() for racer in racers] == ["ready"] * 4
        database = Database(empty_url)
        for _ in range(10):
            account = open_account(database, 1)
            for racer in racers:
                racer.request(account.id)
            assert sorted(racer.answer() for racer in racers) == [*["refused"] * 3, "won"]
        assert database.run_blocking(ledger_audit.check) == ()
        database.close()
    finally:
        codes = [racer.end() for racer in racers]
    assert codes == [0] * 4


async def test_a_cancelled_reservation_holds_no_credits(database: Database) -> None:
    account = await database.run(accounts.create, "a@b.org", "n", free_credits=10)
    for _ in range(10):
        hold_id = new_id("hold")
        attempt = asyncio.create_task(database.run(ledger.reserve, account.id, 1, OWNER, 60, hold_id))
        await asyncio.sleep(0)
        attempt.cancel()
        with suppress(asyncio.CancelledError):
            await attempt
        assert await database.run(ledger.release, account.id, hold_id) == 10
