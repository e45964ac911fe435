"""Database: threads, transactions, cancellation, locks, and pages of lists."""

import asyncio
import threading
import time
from pathlib import Path

import peewee
import pytest

from storage.database import Database, Transaction, reading, unsynced
from storage.database.connections import UnsupportedUrl
from storage.errors import DatabaseBusy
from storage.tables import files, ledger, models
from tests.support.samples.storage import DAY, SOURCE, Clock, open_account

pytestmark = pytest.mark.both_databases


class Trouble(Exception):
    """An error in the middle of a transaction."""


def balance_of(database: Database, account: str) -> int:
    return database.run_blocking(ledger.balance, account)


def grant_and_fail(transaction: Transaction, account: str) -> None:
    ledger.credit(transaction, account, "grant", 5, "a grant that fails")
    raise Trouble


def postgresql(database: Database) -> bool:
    return database.run_blocking(lambda transaction: isinstance(transaction.connection, peewee.PostgresqlDatabase))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "mysql://root:secret@localhost/x", "convertd.db"])
def test_unsupported_urls_are_not_shown(url: str) -> None:
    with pytest.raises(UnsupportedUrl) as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_errors_roll_back(database: Database) -> None:
    account = open_account(database, 1)
    with pytest.raises(Trouble):
        database.run_blocking(grant_and_fail, account.id)
    assert balance_of(database, account.id) == 1


async def test_transactions_do_not_block_the_event_loop(database: Database) -> None:
    def thread(_transaction: Transaction) -> int:
        time.sleep(0.02)
        return threading.get_ident()

    threads = await asyncio.gather(*(database.run(thread) for _ in range(16)))
    assert threading.get_ident() not in threads
    assert len(set(threads)) == (8 if postgresql(database) else 1)


def test_transactions_have_the_time_of_the_clock(database: Database, clock: Clock) -> None:
    assert database.run_blocking(lambda transaction: transaction.now) == int(clock.now)


async def test_cancelled_transactions_have_ended_or_never_start(database: Database) -> None:
    account = open_account(database, 1)
    begun, cancelled = threading.Event(), threading.Event()
    ended: list[str] = []

    def slow_grant(transaction: Transaction, ref: str) -> None:
        begun.set()
        cancelled.wait(30)
        ledger.credit(transaction, account.id, "grant", 1, ref)
        ended.append(ref)

    running = asyncio.create_task(database.run(slow_grant, "running"))
    await asyncio.to_thread(begun.wait)
    others = [asyncio.create_task(database.run(slow_grant, f"other {number}")) for number in range(7)]
    waiting = asyncio.create_task(database.run(slow_grant, "waiting"))
    await asyncio.sleep(0.05)
    for task in (running, waiting):
        task.cancel()
    asyncio.get_running_loop().call_later(0.05, cancelled.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "running" in ended
    refs = database.run_blocking(lambda transaction: [row.ref for row in transaction.all(models.Entry.select())])
    assert "running" in refs
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.gather(*others)
    refs = database.run_blocking(lambda transaction: [row.ref for row in transaction.all(models.Entry.select())])
    assert "waiting" not in refs


async def test_reads_see_one_snapshot(database: Database) -> None:
    account = open_account(database, 1).id
    first_read, granted = threading.Event(), threading.Event()

    @reading
    def read_twice(transaction: Transaction) -> list[int]:
        balances = [ledger.balance(transaction, account)]
        first_read.set()
        granted.wait(30)
        return [*balances, ledger.balance(transaction, account)]

    found = asyncio.create_task(database.run(read_twice))
    await asyncio.to_thread(first_read.wait)
    await database.run(ledger.credit, account, "grant", 1, "meanwhile")
    granted.set()
    assert await found == [1, 1]
    assert await database.run(ledger.balance, account) == 2


def test_blocking_reads_see_one_snapshot(database: Database) -> None:
    account = open_account(database, 1).id

    @reading
    def read_twice(transaction: Transaction) -> list[int]:
        balances = [ledger.balance(transaction, account)]
        database.run_blocking(ledger.credit, account, "grant", 1, "meanwhile")
        return [*balances, ledger.balance(transaction, account)]

    assert database.run_blocking(read_twice) == [1, 1]
    assert database.run_blocking(ledger.balance, account) == 2


async def test_reads_do_not_wait_for_a_writer(database: Database) -> None:
    account = open_account(database, 1).id
    written, end = threading.Event(), threading.Event()

    def write_slowly(transaction: Transaction) -> None:
        ledger.credit(transaction, account, "grant", 1, "slow")
        written.set()
        end.wait(30)

    writing = asyncio.create_task(database.run(write_slowly))
    await asyncio.to_thread(written.wait)
    assert await database.run(ledger.balance, account) == 1
    assert not writing.done()
    end.set()
    await writing
    assert await database.run(ledger.balance, account) == 2


async def test_reads_cannot_write(database: Database) -> None:
    def credit(transaction: Transaction, account: str) -> None:
        ledger.credit(transaction, account, "grant", 1, "a grant")

    account = open_account(database, 1).id
    with pytest.raises(peewee.DatabaseError):
        await database.run(reading(credit), account)
    assert await database.run(ledger.balance, account) == 1


@pytest.mark.both_databases
async def test_only_unsynced_commits_do_not_wait_for_the_disk(database: Database, url: str) -> None:
    setting, modes = (
        ("PRAGMA synchronous", (1, 2)) if url.startswith("sqlite:") else ("SHOW synchronous_commit", ("off", "on"))
    )

    def mode(transaction: Transaction) -> object:
        return transaction.connection.execute_sql(setting).fetchone()[0]

    @unsynced
    def mode_unsynced(transaction: Transaction) -> object:
        return mode(transaction)

    assert tuple([await database.run(function) for function in (mode_unsynced, mode) * 2]) == modes * 2


def test_sqlite_flushes_every_commit(tmp_path: Path) -> None:
    def pragmas(transaction: Transaction) -> list[object]:
        names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        return [transaction.connection.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in names]

    opened = Database(f"sqlite:///{tmp_path / 'new folder' / 'convertd.db'}")
    assert opened.run_blocking(pragmas) == ["wal", 2, 5000, 1]
    opened.close()


def test_sqlite_overwrites_what_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "convertd.db"
    opened = Database(f"sqlite:///{path}")
    changes = [
        "CREATE TABLE note (text TEXT)",
        "INSERT INTO note VALUES ('open-sesame'), ('open-sesame'), ('open-sesame')",
        "UPDATE note SET text = NULL",
    ]

    for change in changes:
        opened.run_blocking(lambda transaction, change: transaction.connection.execute_sql(change), change)
    opened.close()

    assert b"sesame" not in path.read_bytes()


def test_sqlite_transactions_hold_the_write_lock_from_the_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'convertd.db'}"
    one, other = Database(url), Database(url)
    account = open_account(one, 0)

    def read_then_write(transaction: Transaction, ref: str) -> None:
        ledger.balance(transaction, account.id)
        time.sleep(0.05)
        ledger.credit(transaction, account.id, "grant", 1, ref)

    async def both() -> None:
        tasks = [each.run(read_then_write, f"{each}-{number}") for each in (one, other) for number in range(5)]
        await asyncio.gather(*tasks)

    asyncio.run(both())
    assert balance_of(one, account.id) == 10
    one.close()
    other.close()


async def test_the_timeout_includes_the_wait_in_the_queue(url: str) -> None:
    database = Database(url, timeout=0.2)
    end, begun = threading.Event(), threading.Semaphore(0)

    def block(_transaction: Transaction) -> None:
        begun.release()
        end.wait(30)

    number = 8 if postgresql(database) else 1
    slow = [asyncio.create_task(database.run(block)) for _ in range(number)]
    for _ in slow:
        await asyncio.to_thread(begun.acquire)
    cancelled = asyncio.create_task(database.run(lambda _: None))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(DatabaseBusy):
        await database.run(lambda _: None)
    assert not any(task.done() for task in slow)
    end.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await database.run(lambda _: "in time") == "in time"
    database.close()


async def test_reads_do_not_wait_in_the_queue(url: str) -> None:
    database = Database(url, timeout=0.2)
    end = threading.Event()
    slow = [asyncio.create_task(database.run(reading(lambda _: end.wait(30)))) for _ in range(8)]
    await asyncio.sleep(0.02)
    with pytest.raises(DatabaseBusy):
        await database.run(reading(lambda _: None))
    end.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await database.run(reading(lambda _: "in time")) == "in time"
    database.close()


def test_a_new_sqlite_file_is_for_its_owner_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    opened = Database(f"sqlite:///{tmp_path / 'convertd.db'}")
    opened.run_blocking(ledger.credit, open_account(opened, 0).id, "grant", 1, "a")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    opened.close()
    assert modes == {"convertd.db": 0o600, "convertd.db-wal": 0o600, "convertd.db-shm": 0o600}


def read_all(database: Database, account: str, limit: int) -> list[list[str]]:
    """The ids of all pages."""
    pages, cursor = list[list[str]](), None
    while True:
        page = database.run_blocking(files.list_page, account, processed=None, limit=limit, cursor=cursor)
        pages.append([file.file_id for file in page.values])
        cursor = page.next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_have_each_row_once(database: Database, clock: Clock, limit: int) -> None:
    account = open_account(database).id
    added = [set[str]() for _ in range(3)]  # two rows in each second
    for ids in added:
        clock.now += 1
        ids |= {database.run_blocking(files.add, account, SOURCE, DAY).file_id for _ in range(2)}
    pages = read_all(database, account, limit)
    assert [len(page) for page in pages] == [min(limit, 6 - start) for start in range(0, 6, limit)]
    found = [file_id for page in pages for file_id in page]
    assert [{*found[start : start + 2]} for start in (0, 2, 4)] == added[::-1]


def test_rows_that_are_added_meanwhile_do_not_shift_pages(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    for _ in range(4):
        database.run_blocking(files.add, account, SOURCE, DAY)
    first = database.run_blocking(files.list_page, account, processed=None, limit=2, cursor=None)
    clock.now += 1
    database.run_blocking(files.add, account, SOURCE, DAY)
    second = database.run_blocking(files.list_page, account, processed=None, limit=2, cursor=first.next_cursor)
    assert len({file.file_id for file in (*first.values, *second.values)}) == 4
    assert second.next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "1", "-file_1", "1-", "1-\0", "9" * 20 + "-file_1", "1-file_1\n"])
def test_malformed_cursors(database: Database, cursor: str) -> None:
    account = open_account(database).id
    with pytest.raises(ValueError, match="cursor"):
        database.run_blocking(files.list_page, account, processed=None, limit=1, cursor=cursor)
