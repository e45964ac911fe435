"""Lost connections to PostgreSQL, deadlocks, and a server with a full disk."""

import asyncio
import errno
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from storage.database import Database, Transaction
from storage.database import database as database_module
from storage.database.call import Call
from storage.database.connection_pool import ConnectionPool
from storage.database.connections import open_postgresql
from storage.errors import CommitUnknown, DatabaseBusy
from storage.tables import accounts, ledger, ledger_audit
from storage.tables.ledger import Hold
from tests.conftest import MakeUrl
from tests.support.samples.storage import OWNER, USE, open_account
from tests.support.servers.in_process import eventually
from tests.support.servers.tcp_proxy import tcp_proxy

_SIZE = "4m"


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


def test_a_lost_database_is_busy(postgres: str, database: Database, url: str, outages: Callable[[], int]) -> None:
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
    assert outages() >= 2
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


def _process_of(transaction: Transaction) -> int:
    return int(transaction.connection.execute_sql("SELECT pg_backend_pid()").fetchone()[0])


@contextmanager
def stopping() -> Iterator[Callable[[Transaction], None]]:
    """Yields a function that stops the process of its connection until the end of the block."""
    stopped: list[int] = []

    def stop(transaction: Transaction) -> None:
        stopped.append(_process_of(transaction))
        os.kill(stopped[-1], signal.SIGSTOP)

    try:
        yield stop
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def impatient(url: str) -> Iterator[Database]:
    """A database whose transactions have a second."""
    database = Database(url, timeout=1)
    yield database
    database.close()


def test_the_kernel_gives_up_connections_that_deliver_nothing(impatient: Database) -> None:
    def options_of(transaction: Transaction) -> tuple[int, ...]:
        descriptor = os.dup(transaction.connection.connection().fileno())
        names = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        with socket.socket(fileno=descriptor) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return tuple(connection.getsockopt(socket.IPPROTO_TCP, name) for name in names)

    assert impatient.run_blocking(options_of) == (5000, 5, 1, 5)  # milliseconds, seconds, seconds, packets


async def test_a_stopped_process_does_not_block_a_transaction(impatient: Database) -> None:
    account = open_account(impatient, 0)

    def run_when_stopped(transaction: Transaction) -> None:
        stop(transaction)
        ledger.credit(transaction, account.id, "grant", 1, "never")

    with stopping() as stop:
        attempt = asyncio.create_task(impatient.run(run_when_stopped))
        await asyncio.wait([attempt], timeout=10)
        assert isinstance(attempt.exception(), DatabaseBusy)
        assert await impatient.run(ledger.balance, account.id) == 0
        with pytest.raises(CommitUnknown):
            await impatient.run(stop)  # does not answer COMMIT
    assert await impatient.run(ledger.balance, account.id) == 0


async def test_a_transaction_ends_when_its_task_is_cancelled_again(url: str) -> None:
    database = Database(url, timeout=60)
    started = threading.Event()

    def never_ends(transaction: Transaction) -> None:
        stop(transaction)
        started.set()
        accounts.any_exists(transaction)

    with stopping() as stop:
        task = asyncio.create_task(database.run(never_ends))
        await asyncio.to_thread(started.wait, 30)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await asyncio.to_thread(database.close)


async def test_a_server_that_is_cut_off_fails_all_transactions_in_time(url: str) -> None:
    opened = 3
    with tcp_proxy(urlsplit(url).port or 0) as proxy:
        database = Database(urlsplit(url)._replace(netloc=f"convertd@127.0.0.1:{proxy.port}").geturl(), timeout=1)
        await asyncio.gather(*(database.run(lambda _transaction: time.sleep(0.2)) for _ in range(opened)))
        proxy.cut_off()
        # More than there are connections. Peewee's pool would open them one after the other.
        async with asyncio.timeout(10):
            attempts = (database.run(accounts.any_exists) for _ in range(20))
            results = await asyncio.gather(*attempts, return_exceptions=True)
        assert [type(result) for result in results] == [DatabaseBusy] * 20
        proxy.reconnect()
        assert await asyncio.to_thread(eventually, lambda: _responds(database))
        await asyncio.to_thread(database.close)


def _responds(database: Database) -> bool:
    with suppress(DatabaseBusy):
        return not database.run_blocking(accounts.any_exists)
    return False


async def test_transactions_have_less_time_until_one_succeeds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "RETRY_TIMEOUT", 0.1)
    database = Database(url, timeout=0.8)

    def never_ends(transaction: Transaction) -> None:
        stop(transaction)
        accounts.any_exists(transaction)

    async def seconds_of_a_failure() -> float:
        started = time.monotonic()
        with pytest.raises(DatabaseBusy):
            await database.run(never_ends)
        return time.monotonic() - started

    def is_refused(_transaction: Transaction) -> None:
        raise DatabaseBusy

    with stopping() as stop:
        seconds = [await seconds_of_a_failure()]
        with pytest.raises(DatabaseBusy):
            await database.run(is_refused)
        seconds.append(await seconds_of_a_failure())
        assert (await database.run(accounts.any_exists)) is False
        seconds.append(await seconds_of_a_failure())
    assert seconds[1] < 0.8 <= min(seconds[0], seconds[2])
    await asyncio.to_thread(database.close)


async def test_a_transaction_has_what_another_has_left_of_the_time(url: str) -> None:
    database = Database(url, timeout=1.5)

    def never_ends(transaction: Transaction) -> None:
        stop(transaction)
        accounts.any_exists(transaction)

    with stopping() as stop:
        first = asyncio.create_task(database.run(never_ends))
        await asyncio.sleep(0.5)
        started = time.monotonic()
        with pytest.raises(DatabaseBusy):
            await database.run(never_ends)
        assert time.monotonic() - started < 1.5
        await asyncio.gather(first, return_exceptions=True)
    await asyncio.to_thread(database.close)


def test_long_statements_end_on_the_server(impatient: Database, postgres: str) -> None:
    def sleep(transaction: Transaction) -> None:
        transaction.connection.execute_sql("SELECT pg_sleep(60)")

    with pytest.raises(DatabaseBusy):
        impatient.run_blocking(sleep)
    with psycopg.connect(postgres, autocommit=True) as connection:
        running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'"
        assert eventually(lambda: connection.execute(running).fetchone() == (0,))


def test_without_a_timeout_statements_have_no_limit(postgres: str, url: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {_name(url)} SET statement_timeout = 100".encode())
    database = Database(url)
    database.run_blocking(lambda transaction: transaction.connection.execute_sql("SELECT pg_sleep(0.2)"))
    database.close()


def test_the_locks_of_a_stopped_client_end(database: Database, url: str) -> None:
    account = open_account(database, 0)
    pool = ConnectionPool([open_postgresql(url)], time.time, 0.5)
    locked, resumed = threading.Event(), threading.Event()

    def hold_a_lock(transaction: Transaction) -> int:
        ledger.credit(transaction, account.id, "grant", 1, "once")
        locked.set()
        resumed.wait(30)
        return ledger.balance(transaction, account.id)

    call = Call(hold_a_lock, (), {})
    pool.submit(call)
    locked.wait(30)
    database.run_blocking(ledger.credit, account.id, "grant", 2, "meanwhile")
    resumed.set()
    assert call.future.result() == 3  # the function ran again
    assert balance_of(database, account.id) == 3
    pool.close()


@pytest.fixture
def small_disk(postgres: str) -> Iterator[Path]:
    """A small file system with the tablespace `small`."""
    with tempfile.TemporaryDirectory(prefix="convertd-disk-") as name, psycopg.connect(postgres, autocommit=True) as db:
        folder = Path(name) / "disk"
        folder.mkdir()
        folder.parent.chmod(0o755)
        ((data,),) = db.execute("SHOW data_directory").fetchall()
        owner = Path(data).stat()
        options = f"size={_SIZE},mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        db.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
        yield folder
        db.execute("DROP TABLESPACE small")
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _holds_until_it_is_full(database: Database, account: str) -> list[Hold]:
    holds = list[Hold]()
    while True:
        try:
            holds.append(database.run_blocking(ledger.reserve, account, 1, OWNER))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
            return holds


def test_a_full_disk_rolls_back_and_recovers(small_disk: Path, new_postgres_url: MakeUrl) -> None:
    url = f"{new_postgres_url()}%20-cdefault_tablespace%3Dsmall"
    database = Database(url)
    try:
        account = open_account(database, 100_000).id
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

        holds = _holds_until_it_is_full(database, account)

        found = database.run_blocking(accounts.get, account)
        assert (found.credits_remaining, found.credits_held) == (100_000 - len(holds), len(holds))
        filler.unlink()
        more = database.run_blocking(ledger.reserve, account, 1, OWNER)
        for hold in (*holds, more):
            database.run_blocking(ledger.settle, hold, USE)
        assert not database.run_blocking(ledger_audit.check)
    finally:
        database.close()
        with psycopg.connect(url, autocommit=True) as db:
            ((schema,),) = db.execute("SELECT current_schema()").fetchall()
            db.execute(f"DROP SCHEMA {schema} CASCADE".encode())
