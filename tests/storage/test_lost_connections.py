"""Lost connections to PostgreSQL, and deadlocks."""

import asyncio
import os
import secrets
import signal
import threading
import time

import psycopg
import pytest

from storage.database import Database, Transaction, connection_pool
from storage.errors import CommitUnknown, DatabaseBusy
from storage.tables import accounts, ledger
from tests.support.samples.storage import open_account

pytestmark = pytest.mark.both_databases


@pytest.fixture
def url(postgres: str) -> str:
    """The URL of an empty database without other connections."""
    name = f"lost_{secrets.token_hex(8)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{postgres.rpartition('/')[0]}/{name}"


def balance_of(database: Database, account: str) -> int:
    return database.run_blocking(ledger.balance, account)


def terminate_others(postgres: str, url: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (_name(url),)
        )


def _let_in(postgres: str, url: str, anybody: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {_name(url)} ALLOW_CONNECTIONS {anybody}".encode())


def _name(url: str) -> str:
    return url.rpartition("/")[2]


async def test_lost_connections_are_replaced(postgres: str, database: Database, url: str) -> None:
    account = open_account(database, 3)
    await asyncio.gather(*(database.run(lambda _transaction: time.sleep(0.2)) for _ in range(8)))
    terminate_others(postgres, url)
    for _ in range(20):
        assert await database.run(ledger.balance, account.id) == 3


def test_a_transaction_is_retried_after_a_lost_connection(postgres: str, database: Database, url: str) -> None:
    account = open_account(database, 0)
    runs = []

    def interrupted(transaction: Transaction) -> None:
        ledger.credit(transaction, account.id, "grant", 1, "once")
        runs.append(1)
        if len(runs) == 1:
            terminate_others(postgres, url)
        ledger.balance(transaction, account.id)

    database.run_blocking(interrupted)
    assert (len(runs), balance_of(database, account.id)) == (2, 1)


def test_a_transaction_is_not_retried_after_a_lost_commit(postgres: str, database: Database, url: str) -> None:
    account = open_account(database, 0)
    runs = []

    def lost_at_the_end(transaction: Transaction) -> None:
        ledger.credit(transaction, account.id, "grant", 1, "once")
        runs.append(1)
        terminate_others(postgres, url)

    with pytest.raises(CommitUnknown):
        database.run_blocking(lost_at_the_end)
    assert (len(runs), balance_of(database, account.id)) == (1, 0)


def test_an_unreachable_database_is_busy(postgres: str, database: Database, url: str) -> None:
    account = open_account(database, 3)
    runs = []

    def shut_out(transaction: Transaction) -> None:
        runs.append(1)
        _let_in(postgres, url, "false")
        terminate_others(postgres, url)
        ledger.credit(transaction, account.id, "grant", 1, "never")

    with pytest.raises(DatabaseBusy):  # the connection is lost, and no other can be opened
        database.run_blocking(shut_out)
    with pytest.raises(DatabaseBusy):
        balance_of(database, account.id)
    _let_in(postgres, url, "true")
    assert (len(runs), balance_of(database, account.id)) == (1, 3)


async def test_both_transactions_of_a_deadlock_succeed(database: Database) -> None:
    first, second = open_account(database, 0).id, open_account(database, 0).id
    runs = []
    each_has_one, one_has_both = threading.Barrier(2, timeout=30), threading.Event()

    def grant_both(transaction: Transaction, *order: str) -> None:
        runs.append(order)
        again = len(runs) > 2
        if again:
            one_has_both.wait(30)  # otherwise both transactions could deadlock again
        for account in order:
            ledger.credit(transaction, account, "grant", 1, f"{order} {account}")
            if account == order[0] and not again:
                each_has_one.wait()
        one_has_both.set()

    await asyncio.gather(database.run(grant_both, first, second), database.run(grant_both, second, first))
    assert len(runs) == 3
    balances = [await database.run(accounts.get, account) for account in (first, second)]
    assert [account.credits_remaining for account in balances] == [2, 2]


def test_a_stopped_server_does_not_block_a_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_SECONDS", 1.0)
    opened = Database(url)
    account = open_account(opened, 0)
    stopped: list[int] = []

    def stop_once(transaction: Transaction) -> None:
        if not stopped:
            stop_always(transaction)
        ledger.credit(transaction, account.id, "grant", 1, "once")

    def stop_always(transaction: Transaction) -> None:
        stopped.append(transaction.connection.execute_sql("SELECT pg_backend_pid()").fetchone()[0])
        os.kill(stopped[-1], signal.SIGSTOP)
        ledger.balance(transaction, account.id)

    try:
        opened.run_blocking(stop_once)
        with pytest.raises(DatabaseBusy):
            opened.run_blocking(stop_always)
        assert balance_of(opened, account.id) == 1
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        opened.close()
