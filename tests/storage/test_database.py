"""The door to the database: threads, transactions, migrations, lost connections."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import peewee
import psycopg
import pytest

from storage import accounts, ledger, models, schema
from storage.database import Database, UnsupportedUrl
from storage.errors import OutcomeUnknown
from storage.schema import NewerSchema
from storage.transaction import Transaction
from tests.storage.samples import Clock, open_account

TABLES = (
    models.Account,
    models.Key,
    models.Verification,
    models.Entry,
    models.Hold,
    models.Usage,
    models.Idempotency,
)


class Trouble(Exception):
    """Something that goes wrong in the middle of a transaction."""


def balance_of(database: Database, account: str) -> int:
    return database.run_blocking(ledger.balance, account)


def grant_and_fail(transaction: Transaction, account: str) -> None:
    ledger.credit(transaction, account, "grant", 5, "a grant that fails")
    raise Trouble


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "mysql://root:secret@localhost/x", "convertd.db"])
def test_other_urls_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UnsupportedUrl) as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_the_tables_are_what_the_models_say(database: Database) -> None:
    def columns(transaction: Transaction, table: type[peewee.Model]) -> dict[str, bool]:
        found = transaction.connection.get_columns(table._meta.table_name)
        keys = transaction.connection.get_primary_keys(table._meta.table_name)
        return {column.name: column.null and column.name not in keys for column in found}

    for table in TABLES:
        fields = {field.column_name: field.null for field in table._meta.sorted_fields}
        assert database.run_blocking(columns, table) == fields


def test_opening_again_keeps_everything(url: str) -> None:
    first = Database(url)
    account = open_account(first, 7)
    first.close()
    second = Database(url)
    assert balance_of(second, account.id) == 7
    second.close()


def test_a_database_of_a_newer_release_is_refused(url: str) -> None:
    def upgrade(transaction: Transaction) -> None:
        insert = "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01 00:00:00')"
        transaction.connection.execute_sql(insert)

    opened = Database(url)
    opened.run_blocking(upgrade)
    opened.close()
    with pytest.raises(NewerSchema):
        Database(url)


def test_a_migration_that_fails_leaves_nothing_behind(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = "def up(migrator, database):\n    database.execute_sql('CREATE TABLE thing (id BIGINT)')\n"
    (tmp_path / "0001_good.py").write_text(good)
    (tmp_path / "0002_bad.py").write_text(good)
    real = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path)
    with pytest.raises(peewee.DatabaseError):
        Database(url)
    monkeypatch.setattr(schema, "MIGRATIONS", real)
    opened = Database(url)
    assert "thing" not in opened.run_blocking(lambda transaction: transaction.connection.get_tables())
    opened.close()


def test_what_fails_is_rolled_back(database: Database) -> None:
    account = open_account(database, 1)
    with pytest.raises(Trouble):
        database.run_blocking(grant_and_fail, account.id)
    assert balance_of(database, account.id) == 1


async def test_transactions_stay_off_the_event_loop(database: Database) -> None:
    def thread(_transaction: Transaction) -> int:
        time.sleep(0.02)
        return threading.get_ident()

    threads = await asyncio.gather(*(database.run(thread) for _ in range(16)))
    assert threading.get_ident() not in threads
    assert len(set(threads)) == (1 if isinstance(database._peewee, peewee.SqliteDatabase) else 8)


def test_the_time_of_a_transaction_is_the_clocks(database: Database, clock: Clock) -> None:
    assert database.run_blocking(lambda transaction: transaction.now) == int(clock.now)


async def test_what_is_cancelled_has_ended_or_never_begins(database: Database) -> None:
    account = open_account(database, 1)
    begun = threading.Event()
    ended: list[str] = []

    def slow_grant(transaction: Transaction, ref: str) -> None:
        begun.set()
        time.sleep(0.2)
        ledger.credit(transaction, account.id, "grant", 1, ref)
        ended.append(ref)

    running = asyncio.create_task(database.run(slow_grant, "running"))
    await asyncio.to_thread(begun.wait)
    others = [asyncio.create_task(database.run(slow_grant, f"other {number}")) for number in range(7)]
    waiting = asyncio.create_task(database.run(slow_grant, "waiting"))
    await asyncio.sleep(0.05)
    for task in (running, waiting):
        task.cancel()
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


def test_sqlite_survives_a_power_cut(tmp_path: Path) -> None:
    def pragmas(transaction: Transaction) -> list[object]:
        names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        return [transaction.connection.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in names]

    opened = Database(f"sqlite:///{tmp_path / 'new folder' / 'convertd.db'}")
    assert opened.run_blocking(pragmas) == ["wal", 2, 5000, 1]
    opened.close()


def test_a_transaction_of_sqlite_is_a_writer_from_its_beginning(tmp_path: Path) -> None:
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


def _terminate_others(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_lost_connections_are_made_again(database: Database, url: str) -> None:
    account = open_account(database, 3)
    await asyncio.gather(*(database.run(lambda _transaction: time.sleep(0.2)) for _ in range(8)))
    _terminate_others(url)
    for _ in range(20):
        assert await database.run(ledger.balance, account.id) == 3


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_transaction_whose_connection_is_lost_runs_again(database: Database, url: str) -> None:
    account = open_account(database, 0)
    runs = []

    def interrupted(transaction: Transaction) -> None:
        ledger.credit(transaction, account.id, "grant", 1, "once")
        runs.append(1)
        if len(runs) == 1:
            _terminate_others(url)
        ledger.balance(transaction, account.id)

    database.run_blocking(interrupted)
    assert (len(runs), balance_of(database, account.id)) == (2, 1)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_transaction_that_may_have_happened_is_not_run_again(database: Database, url: str) -> None:
    account = open_account(database, 0)
    runs = []

    def lost_at_the_end(transaction: Transaction) -> None:
        ledger.credit(transaction, account.id, "grant", 1, "once")
        runs.append(1)
        _terminate_others(url)

    with pytest.raises(OutcomeUnknown):
        database.run_blocking(lost_at_the_end)
    assert (len(runs), balance_of(database, account.id)) == (1, 0)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_a_deadlock_is_broken_and_both_get_through(database: Database) -> None:
    first, second = open_account(database, 0).id, open_account(database, 0).id
    runs = []

    def grant_both(transaction: Transaction, *order: str) -> None:
        runs.append(order)
        for account in order:
            ledger.credit(transaction, account, "grant", 1, f"{order} {account}")
            time.sleep(0.2)

    await asyncio.gather(database.run(grant_both, first, second), database.run(grant_both, second, first))
    assert len(runs) == 3
    balances = [await database.run(accounts.get, account) for account in (first, second)]
    assert [account.balance for account in balances] == [2, 2]
