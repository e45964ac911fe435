"""Functions of one group: with PostgreSQL, those that wait share a transaction, and leave connections to others."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import psycopg
import pytest

from storage.database import Database, Transaction, by_account, unsynced
from storage.database.transaction import Statement
from storage.errors import CommitUnknown
from storage.tables import ledger, models
from tests.support.samples.storage import open_account

R = TypeVar("R")

pytestmark = pytest.mark.parametrize("url", ["postgresql"], indirect=True)

CURRENT = Statement("SELECT CAST(pg_current_xact_id() AS TEXT)")
TERMINATE = Statement("SELECT pg_terminate_backend(pg_backend_pid())")


class Trouble(Exception):
    """An error in the middle of a transaction."""


@pytest.fixture
def account(database: Database) -> str:
    return open_account(database, 0).id


@contextmanager
def locked(url: str, account: str) -> Iterator[None]:
    """Another server keeps the row of the account locked during the block."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM account WHERE id = %s FOR UPDATE", (account,))
        yield


def grant(account: str, ref: object) -> Callable[[Transaction], str]:
    """Changes the account, and returns the id of the transaction."""

    def function(transaction: Transaction) -> str:
        ledger.credit(transaction, account, "grant", 1, str(ref))
        return str(transaction.execute_statement(CURRENT)[0][0])

    return function


@by_account
def run_for(transaction: Transaction, _account: str, function: Callable[[Transaction], R]) -> R:
    return function(transaction)


run_unsynced_for = unsynced(by_account(lambda transaction, _account, function: function(transaction)))


def refs(database: Database) -> set[str]:
    return database.run_blocking(lambda transaction: {row.ref for row in transaction.all(models.Entry.select())})


async def begin(
    database: Database, account: str, functions: Sequence[Callable[[Transaction], object]]
) -> list[asyncio.Task[object]]:
    """Begins the functions, of which all but the first one wait, because that waits for a lock."""
    started = threading.Event()

    def first(transaction: Transaction) -> object:
        started.set()
        return functions[0](transaction)

    tasks = [asyncio.create_task(database.run(run_for, account, first))]
    await asyncio.to_thread(started.wait, 30)
    tasks += [asyncio.create_task(database.run(run_for, account, function)) for function in functions[1:]]
    await asyncio.sleep(0)
    return tasks


async def run_together(
    database: Database, url: str, account: str, functions: Sequence[Callable[[Transaction], object]]
) -> list[object]:
    """Runs the functions, of which all but the first one wait. Returns their results and errors."""
    with locked(url, account):
        tasks = await begin(database, account, functions)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_functions_that_wait_share_a_transaction(database: Database, url: str, account: str) -> None:
    results = await run_together(database, url, account, [grant(account, number) for number in range(17)])
    assert len(set(results[:1])) == len(set(results[1:])) == 1
    assert results[0] != results[1]
    assert database.run_blocking(ledger.balance, account) == 17


async def test_a_large_group_needs_several_transactions(database: Database, url: str, account: str) -> None:
    results = await run_together(database, url, account, [grant(account, number) for number in range(50)])
    assert [*Counter(results).values()] == [1, 16, 16, 16, 1]
    assert database.run_blocking(ledger.balance, account) == 50


async def test_a_group_leaves_connections_to_others(database: Database, url: str, account: str) -> None:
    other = open_account(database, 3).id
    with locked(url, account):
        waiting = await begin(database, account, [grant(account, number) for number in range(100)])
        async with asyncio.timeout(30):
            assert await database.run(ledger.balance, other) == 3
            await database.run(run_for, other, grant(other, "other"))
    await asyncio.gather(*waiting)
    assert database.run_blocking(ledger.balance, account) == 100


async def test_a_group_waits_for_the_disk_if_one_of_it_does(database: Database, url: str, account: str) -> None:
    modes: list[str] = []

    def note(transaction: Transaction) -> None:
        grant(account, len(modes))(transaction)
        modes.append(transaction.connection.execute_sql("SHOW synchronous_commit").fetchone()[0])

    await database.run(run_unsynced_for, account, note)
    await database.run(run_for, account, note)
    with locked(url, account):
        tasks = await begin(database, account, [note, note])
        tasks.append(asyncio.create_task(database.run(run_unsynced_for, account, note)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert modes == ["off", "on", "on", "on", "on"]


async def test_an_error_changes_nothing_for_the_others(database: Database, url: str, account: str) -> None:
    def fail(transaction: Transaction) -> None:
        grant(account, "failed")(transaction)
        raise Trouble

    functions = [grant(account, "first"), grant(account, "second"), fail, grant(account, "third")]
    results = await run_together(database, url, account, functions)
    assert [type(result) for result in results] == [str, str, Trouble, str]
    assert refs(database) == {"first", "second", "third"}


async def test_a_group_runs_again_after_a_lost_connection(database: Database, url: str, account: str) -> None:
    runs: list[int] = []

    def interrupted(transaction: Transaction) -> None:
        runs.append(1)
        grant(account, "interrupted")(transaction)
        if len(runs) == 1:
            transaction.execute_statement(TERMINATE)

    results = await run_together(database, url, account, [grant(account, "first"), grant(account, 2), interrupted])
    assert (len(runs), results[2]) == (2, None)
    assert refs(database) == {"first", "2", "interrupted"}


async def test_a_lost_commit_is_unknown_to_all(database: Database, url: str, account: str) -> None:
    def lost_at_the_end(transaction: Transaction) -> None:
        grant(account, "lost")(transaction)
        (pid,) = transaction.connection.execute_sql("SELECT pg_backend_pid()").fetchone()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    functions = [grant(account, "first"), grant(account, "second"), lost_at_the_end]
    results = await run_together(database, url, account, functions)
    assert [type(result) for result in results] == [str, CommitUnknown, CommitUnknown]
    assert refs(database) == {"first"}


async def test_a_cancelled_function_of_a_group_never_starts(database: Database, url: str, account: str) -> None:
    with locked(url, account):
        tasks = await begin(database, account, [grant(account, number) for number in range(4)])
        tasks[2].cancel()
        await asyncio.wait([tasks[2]], timeout=30)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [str, str, asyncio.CancelledError, str]
    assert refs(database) == {"0", "1", "3"}


async def test_a_database_is_closed_after_its_groups(url: str) -> None:
    database = Database(url)
    account, balances = open_account(database, 0).id, list[int]()
    functions = [grant(account, number) for number in range(40)]
    with locked(url, account):
        tasks = await begin(
            database, account, [*functions, lambda transaction: balances.append(ledger.balance(transaction, account))]
        )
    await asyncio.to_thread(database.close)
    assert balances == [40]
    await asyncio.gather(*tasks)
