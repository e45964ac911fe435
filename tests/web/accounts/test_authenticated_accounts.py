"""Authentication: no thread and no write transaction for it, revoked keys, and the last use of a key."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from config.settings import Settings
from storage.database import Database, Transaction
from storage.errors import DatabaseBusy, InvalidKey
from storage.tables import accounts, api_keys, ledger
from storage.tables.api_keys import IssuedKey
from storage.tables.ledger import ServerInstance
from storage.tables.usage import UsageRecord
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.samples.storage import Clock, open_account
from tests.support.servers.in_process import Running
from web.services.accounts.accounts import Accounts
from web.services.conversions.charging import Charges
from web.services.conversions.releases import Releases

USE = UsageRecord("convert", "png", "webp", 1)


class CountingDatabase(Database):
    """A database that counts calls. Writes wait for `writable`."""

    writes = 0
    fails = False

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(url, clock=clock)
        self.writable = asyncio.Event()
        self.writable.set()

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if function is not api_keys.record_use:
            return await super().run(function, *args, **kwargs)
        self.writes += 1
        await self.writable.wait()
        if self.fails:
            raise DatabaseBusy
        return await super().run(function, *args, **kwargs)


@pytest.fixture
async def database(url: str, clock: Clock) -> AsyncIterator[CountingDatabase]:
    opened = CountingDatabase(url, clock)
    yield opened
    opened.close()


@pytest.fixture
async def service(database: CountingDatabase, clock: Clock) -> AsyncIterator[Accounts]:
    opened = Accounts(database, Settings(), clock)
    yield opened
    await opened.close()


def issue(database: Database, *, purchased: int = 5) -> IssuedKey:
    """A key of a new account that has a second key."""
    account = open_account(database, 2).id
    if purchased:
        database.run_blocking(ledger.credit, account, "purchase", purchased, f"purchase of {account}")
    database.run_blocking(api_keys.issue, account, "second")
    return database.run_blocking(api_keys.issue, account, "first")


def bearer(issued: IssuedKey) -> str:
    return f"Bearer {issued.text}"


@pytest.mark.parametrize("purchased", [0, 5])
async def test_requests_read_their_account_in_the_thread_of_the_server(
    database: CountingDatabase, service: Accounts, purchased: int
) -> None:
    issued = issue(database, purchased=purchased)
    threads = set(threading.enumerate())
    account = await service.authenticate(bearer(issued))
    assert await service.balance(account.id) == account.credits_remaining == 2 + purchased
    await service.close()
    writer = database.run_blocking(lambda _: threading.current_thread())
    assert set(threading.enumerate()) - threads <= {writer}


async def test_a_locked_database_does_not_block_the_server(database: CountingDatabase, service: Accounts) -> None:
    issued = issue(database)

    def lock(transaction: Transaction, mode: str) -> None:
        transaction.connection.execute_sql(f"PRAGMA locking_mode = {mode}")

    for _ in range(2):  # it is locked by the first transaction in this mode
        await database.run(lock, "exclusive")
    found = asyncio.create_task(service.authenticate(bearer(issued)))
    await asyncio.sleep(0.1)
    assert not found.done()
    for _ in range(2):
        await database.run(lock, "normal")
    assert (await found).tier.name == "paid"


async def test_an_account_is_read_for_each_request(database: CountingDatabase, service: Accounts) -> None:
    issued = issue(database, purchased=0)
    account = await service.authenticate(bearer(issued))
    assert (account.tier.name, account.credits_remaining) == ("free", 2)
    database.run_blocking(ledger.credit, account.id, "purchase", 5, "a purchase")
    account = await service.authenticate(bearer(issued))
    assert (account.tier.name, account.credits_remaining) == ("paid", 7)


@pytest.mark.parametrize("change", ["revoke", "rotate"])
async def test_keys_revoked_here_end_at_once(database: CountingDatabase, service: Accounts, change: str) -> None:
    issued = issue(database)
    account = await service.authenticate(bearer(issued))
    if change == "revoke":
        await service.revoke_key(account.id, issued.key.key_id)
    else:
        await service.rotate_key(account.id, issued.key.key_id, 0)
    with pytest.raises(InvalidKey):
        await service.authenticate(bearer(issued))


async def test_a_key_ends_with_its_grace_period(database: CountingDatabase, service: Accounts, clock: Clock) -> None:
    issued = issue(database)
    account = await service.authenticate(bearer(issued))
    await service.rotate_key(account.id, issued.key.key_id, 3)
    for _ in range(2):
        await service.authenticate(bearer(issued))
    clock.now += 3
    with pytest.raises(InvalidKey):
        await service.authenticate(bearer(issued))


@pytest.mark.parametrize("credits", [1, 8])  # the account has seven
async def test_keys_revoked_elsewhere_end_at_once(database: CountingDatabase, service: Accounts, credits: int) -> None:
    issued, releases = issue(database), Releases(database)
    charges = Charges(database, ServerInstance("server", "boot"), releases)
    account = await service.authenticate(bearer(issued))
    database.run_blocking(api_keys.revoke, account.id, issued.key.key_id)
    with pytest.raises(InvalidKey):
        await service.authenticate(bearer(issued))
    with pytest.raises(InvalidKey):  # as of a request that was authenticated before
        async with charges.hold(account.id, account.key_id, credits, USE, None):
            raise AssertionError
    await releases.close()
    stored = await database.run(accounts.get, account.id)
    assert (stored.credits_remaining, stored.credits_held, stored.credits_used_total) == (7, 0, 0)


async def test_no_request_waits_for_its_record(database: CountingDatabase, service: Accounts, clock: Clock) -> None:
    issued = issue(database)
    database.writable.clear()
    account = await service.authenticate(bearer(issued))
    await service.authenticate(bearer(issued))
    assert account.last_used_at == int(clock.now)
    await asyncio.sleep(0)
    assert database.writes == 1
    database.writable.set()
    await service.close()
    used = [key.last_used_at for key in await service.list_keys(account.id) if key.key_id == issued.key.key_id]
    assert used == [int(clock.now)]
    clock.now += 59
    await service.authenticate(bearer(issued))
    await service.close()
    assert database.writes == 1
    clock.now += 1
    await service.authenticate(bearer(issued))
    await service.close()
    assert database.writes == 2


async def test_keys_are_listed_with_this_use(database: CountingDatabase, service: Accounts, clock: Clock) -> None:
    issued = issue(database)
    account = await service.authenticate(bearer(issued))
    assert int(clock.now) in {key.last_used_at for key in await service.list_keys(account.id)}


async def test_a_use_that_cannot_be_recorded_is_logged(
    database: CountingDatabase, service: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    issued = issue(database)
    database.fails = True
    await service.authenticate(bearer(issued))
    await service.close()
    assert "last use" in caplog.text


class TestOverHttp:
    def test_a_revoked_key_does_not_convert(self, server: Running) -> None:
        key = server.account(50, purchased=1)
        image, form = {"file": ("a.png", sample("png"))}, {"output_format": "jpeg"}
        other = server.request("POST", "/account/keys", key, json={"name": "another"}).json()["data"]
        assert server.request("POST", "/convert", other["api_key"], files=image, data=form).status_code == 200
        assert server.request("DELETE", f"/account/keys/{other['key_id']}", key).status_code == 200
        problem(server.request("POST", "/convert", other["api_key"], files=image, data=form), 401, "invalid_api_key")

    def test_every_response_has_the_balance_after_the_request(self, server: Running) -> None:
        key = server.account(50, purchased=1)
        before = server.request("GET", "/account", key).json()["meta"]["credits_remaining"]
        image, form = {"file": ("a.png", sample("png"))}, {"output_format": "jpeg"}
        balances = []
        for idempotency in ("first", "second", "first", "second"):  # the last two are replayed
            headers = {"Accept": "application/json", "Idempotency-Key": f"balance-{idempotency}"}
            answer = server.request("POST", "/convert", key, files=image, data=form, headers=headers)
            balances.append(answer.json()["meta"]["credits_remaining"])
        balances.append(server.request("GET", "/account", key).json()["data"]["credits_remaining"])
        assert balances == [before - 1, *[before - 2] * 4]
