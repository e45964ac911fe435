"""SqliteWriter: transactions that wait together are committed together, and do not affect each other."""

import asyncio
import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest

from storage.database import Database, Transaction, connections
from storage.errors import DatabaseBusy
from storage.tables import ledger, ledger_audit, models
from tests.support.samples.storage import open_account


class Trouble(Exception):
    """An error in the middle of a transaction."""


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@contextmanager
def traced(database: Database) -> Iterator[list[str]]:
    """Collects the statements that the writer runs."""
    statements: list[str] = []

    def trace(callback: Callable[[str], object] | None) -> None:
        database.run_blocking(lambda transaction: transaction.connection.connection().set_trace_callback(callback))

    trace(statements.append)
    yield statements
    trace(None)


@contextmanager
def busy_writer(database: Database) -> Iterator[None]:
    """The writer is busy during the block, so that calls wait and form a group."""
    started, end = threading.Event(), threading.Event()

    def block(_transaction: Transaction) -> None:
        started.set()
        end.wait(30)

    thread = threading.Thread(target=database.run_blocking, args=(block,))
    thread.start()
    started.wait(30)
    yield
    end.set()
    thread.join()


async def run_together(database: Database, *functions: Callable[[Transaction], object]) -> list[object]:
    """Runs the functions in one group. Returns their results and errors."""
    with busy_writer(database):
        tasks = [asyncio.create_task(database.run(function)) for function in functions]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def grant(account: str, ref: str) -> Callable[[Transaction], object]:
    return lambda transaction: ledger.credit(transaction, account, "grant", 1, ref).balance


def refs(database: Database) -> set[str]:
    return database.run_blocking(lambda transaction: {row.ref for row in transaction.all(models.Entry.select())})


async def test_waiting_transactions_share_commits(database: Database) -> None:
    account = open_account(database, 0).id
    with traced(database) as statements:
        results = await run_together(database, *(grant(account, f"grant {number}") for number in range(100)))
    assert results == list(range(1, 101))
    # Of the transaction that starts the trace, the busy one, and groups of 64 and 36.
    assert statements.count("COMMIT") == 4


async def test_an_error_rolls_back_its_own_function_only(database: Database) -> None:
    account = open_account(database, 0).id

    def fail(transaction: Transaction) -> None:
        grant(account, "failed")(transaction)
        raise Trouble

    first, second, third = await run_together(database, grant(account, "first"), fail, grant(account, "third"))
    assert (first, third) == (1, 2)
    assert isinstance(second, Trouble)
    assert refs(database) == {"first", "third"}


async def test_functions_run_again_alone_if_one_breaks_their_transaction(database: Database) -> None:
    account = open_account(database, 0).id
    runs: list[str] = []

    def record(transaction: Transaction) -> object:
        runs.append("record")
        return grant(account, "recorded")(transaction)

    def break_transaction(transaction: Transaction) -> None:
        runs.append("break")
        transaction.connection.execute_sql("ROLLBACK")  # as SQLite does by itself, for example if the disk is full
        raise Trouble

    first, second, third = await run_together(database, record, break_transaction, grant(account, "third"))
    assert (first, third) == (1, 2)
    assert isinstance(second, Trouble)
    assert runs == ["record", "break", "record", "break"]
    assert refs(database) == {"recorded", "third"}


async def test_groups_have_the_results_of_single_functions(database: Database) -> None:
    account, number = open_account(database, 0).id, count()
    random = Random(1)

    def fail(transaction: Transaction) -> None:
        grant(account, "failed")(transaction)
        raise Trouble

    def break_transaction(transaction: Transaction) -> None:
        transaction.connection.execute_sql("ROLLBACK")
        raise Trouble

    balance = 0
    for _ in range(20):
        kinds = random.choices(("grant", "fail", "break"), (8, 3, random.choice((0, 1))), k=random.randint(1, 70))
        others = {"fail": fail, "break": break_transaction}
        functions = [others.get(kind) or grant(account, f"{next(number)}") for kind in kinds]
        results = await run_together(database, *functions)
        succeeded = [result for result, kind in zip(results, kinds, strict=True) if kind == "grant"]
        assert succeeded == list(range(balance + 1, balance + 1 + len(succeeded)))
        assert sum(isinstance(result, Trouble) for result in results) == len(kinds) - len(succeeded)
        balance += len(succeeded)
    assert "failed" not in refs(database)
    assert len(refs(database)) == balance
    assert database.run_blocking(ledger_audit.check) == ()


async def test_functions_run_again_alone_if_the_disk_is_full(database: Database) -> None:
    account = open_account(database, 0).id

    def limit_pages(transaction: Transaction, extra: int) -> None:
        ((pages,),) = transaction.connection.execute_sql("PRAGMA page_count").fetchall()
        transaction.connection.execute_sql(f"PRAGMA max_page_count = {pages + extra}")

    def fill(transaction: Transaction) -> None:
        for number in range(1000):
            grant(account, f"{number}" * 1000)(transaction)

    database.run_blocking(limit_pages, 1)
    first, second, third = await run_together(database, grant(account, "first"), fill, grant(account, "third"))
    assert (first, third) == (1, 2)
    assert isinstance(second, OSError)
    assert second.errno == errno.ENOSPC
    assert refs(database) == {"first", "third"}
    database.run_blocking(limit_pages, 10_000)
    assert await database.run(grant(account, "after")) == 3


async def test_a_locked_database_is_busy_for_all(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TIMEOUT", 0.2)
    database = Database(url)
    account = open_account(database, 0).id
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    attempts = (database.run(grant(account, f"{number}")) for number in range(10))
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(result, DatabaseBusy) for result in results)
    other.close()
    assert await database.run(grant(account, "after")) == 1
    database.close()


async def test_the_timeout_includes_the_wait_for_the_lock(url: str, path: Path) -> None:
    database = Database(url, timeout=0.1)
    account = open_account(database, 0).id
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(connections.TIMEOUT - 1):
        with pytest.raises(DatabaseBusy):
            await database.run(grant(account, "late"))
    other.close()
    assert await database.run(grant(account, "after")) == 1
    assert refs(database) == {"after"}
    database.close()


async def test_a_cancelled_function_of_a_group_never_starts(database: Database) -> None:
    account = open_account(database, 0).id
    with busy_writer(database):
        tasks = [asyncio.create_task(database.run(grant(account, name))) for name in ("kept", "cancelled", "other")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert tasks[1].cancelled()
    assert [await tasks[0], await tasks[2]] == [1, 2]
    assert refs(database) == {"kept", "other"}


async def test_a_running_group_is_committed_before_its_cancellation_is_raised(database: Database) -> None:
    account = open_account(database, 0).id
    started, end = threading.Event(), threading.Event()

    def slow(transaction: Transaction) -> object:
        started.set()
        end.wait(30)
        return grant(account, "slow")(transaction)

    with busy_writer(database):
        quick = asyncio.create_task(database.run(grant(account, "quick")))
        running = asyncio.create_task(database.run(slow))
        await asyncio.sleep(0)
    await asyncio.to_thread(started.wait)
    quick.cancel()  # it has run, but is not committed
    await asyncio.sleep(0.05)
    assert not quick.done()
    end.set()
    assert await running == 2
    with pytest.raises(asyncio.CancelledError):
        await quick
    assert refs(database) == {"quick", "slow"}
