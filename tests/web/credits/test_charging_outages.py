"""Charges during outages of the database and power cuts: each that was reported is stored once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from engine.errors import StepFailed
from storage.database import Database
from storage.errors import CommitUnknown, DatabaseBusy
from storage.tables import api_keys, idempotency, ledger, ledger_audit, servers
from storage.tables.idempotency import Claim
from storage.tables.ledger import Hold, ServerInstance
from storage.tables.usage import UsageRecord
from tests.support.samples.storage import open_account
from tests.support.servers.power_cuts import SyncedFiles, recorded_syncs
from web.services.conversions import charging, releases
from web.services.conversions.charging import Charges
from web.services.conversions.idempotency import IdempotencyService, IdempotentRequest
from web.services.conversions.releases import Releases

OWNER = ServerInstance("server", "boot")
USE = UsageRecord("convert", "png", "webp", 1)
Payer = tuple[str, str]
CREDITS = 1000


"""The ids of an account and of its key."""


class UnreliableDatabase(Database):
    """A database whose commits of charges and of `loses` have an unknown outcome, and whose next `away` calls fail."""

    away = 0
    saves = True
    loses: Callable[..., Any] | None = None

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        charges = {Hold, UsageRecord} <= {type(argument) for argument in args}
        if charges or function is self.loses:
            if self.saves:
                await super().run(function, *args, **kwargs)
            raise CommitUnknown
        if self.away:
            self.away -= 1
            raise DatabaseBusy
        return await super().run(function, *args, **kwargs)


@pytest.fixture
def unreliable(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableDatabase]:
    monkeypatch.setattr(releases, "RETRY_DELAYS", (0.01,))
    monkeypatch.setattr(charging, "SETTLE_TIMEOUT", 0.5)
    database = UnreliableDatabase(url)
    yield database
    database.close()


@pytest.fixture
def account(unreliable: UnreliableDatabase) -> Payer:
    account = open_account(unreliable, 3).id
    return account, unreliable.run_blocking(api_keys.issue, account, "a key").key.key_id


@pytest.fixture
async def background(unreliable: UnreliableDatabase) -> AsyncIterator[Releases]:
    running = Releases(unreliable)
    yield running
    await running.close()


@pytest.fixture
def opened(unreliable: UnreliableDatabase, background: Releases) -> Charges:
    return Charges(unreliable, OWNER, background)


async def _settled(opened: Charges, unreliable: UnreliableDatabase, account: Payer, away: int) -> tuple[int, object]:
    async with opened.hold(*account, 1, USE, None) as charge:
        unreliable.away = away
        return await charge.settle([("webp", 10)])


async def _failed(opened: Charges, unreliable: UnreliableDatabase, account: Payer, away: int) -> None:
    async with opened.hold(*account, 1, USE, None):
        unreliable.away = away
        raise StepFailed("It failed.")


async def _left(background: Releases, unreliable: UnreliableDatabase, account: Payer) -> int:
    await background.close()
    balance: int = await unreliable.run(ledger.balance, account[0])
    return balance


@pytest.mark.both_databases
async def test_a_reservation_is_refused_if_the_database_is_busy_for_long(
    url: str, unreliable: UnreliableDatabase, account: Payer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "WAIT", 0.1)
    end, impatient = threading.Event(), UnreliableDatabase(url, timeout=0.1)
    background = Releases(impatient)
    charges = Charges(impatient, OWNER, background)
    slow = [asyncio.create_task(impatient.run(lambda _: end.wait(30))) for _ in range(8)]
    await asyncio.sleep(0.05)
    with pytest.raises(DatabaseBusy):
        await _settled(charges, impatient, account, away=0)
    end.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await _left(background, unreliable, account) == 3
    impatient.close()


@pytest.mark.both_databases
async def test_a_committed_charge_is_settled(
    opened: Charges, background: Releases, unreliable: UnreliableDatabase, account: Payer
) -> None:
    assert await _settled(opened, unreliable, account, away=2) == (2, None)
    assert await _left(background, unreliable, account) == 2


@pytest.mark.both_databases
@pytest.mark.parametrize(("saves", "away", "left"), [(False, 2, 3), (True, 1000, 2)], ids=["uncommitted", "unknown"])
async def test_an_outcome_is_reported_as_unknown_until_it_is_known(
    opened: Charges,
    background: Releases,
    unreliable: UnreliableDatabase,
    account: Payer,
    saves: bool,
    away: int,
    left: int,
) -> None:
    unreliable.saves = saves
    with pytest.raises(CommitUnknown):  # not DatabaseBusy, which means that nothing was changed
        await _settled(opened, unreliable, account, away=away)
    unreliable.away = 0
    assert await _left(background, unreliable, account) == left


@pytest.mark.both_databases
async def test_a_database_that_stands_still_is_asked_once(
    opened: Charges,
    background: Releases,
    unreliable: UnreliableDatabase,
    account: Payer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(charging, "STANDSTILL", 0)
    with pytest.raises(CommitUnknown):
        await _settled(opened, unreliable, account, away=1)
    assert await _left(background, unreliable, account) == 2


@pytest.mark.both_databases
@pytest.mark.parametrize("attempts", [2, 50])
async def test_credits_are_released_when_the_database_is_back(
    opened: Charges, background: Releases, unreliable: UnreliableDatabase, account: Payer, attempts: int
) -> None:
    with pytest.raises(StepFailed):  # the original error
        await _failed(opened, unreliable, account, away=attempts)
    assert await _left(background, unreliable, account) == 3


@pytest.mark.both_databases
@pytest.mark.long
async def test_an_error_does_not_wait_long_for_the_release(
    opened: Charges,
    background: Releases,
    unreliable: UnreliableDatabase,
    account: Payer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "RETRY_DELAYS", (3,))
    monkeypatch.setattr(releases, "WAIT", 0.05)
    async with asyncio.timeout(2):
        with pytest.raises(StepFailed):
            await _failed(opened, unreliable, account, away=1)
    assert await _left(background, unreliable, account) == 3


@pytest.mark.both_databases
async def test_only_the_first_release_of_an_outage_is_waited_for(
    unreliable: UnreliableDatabase, background: Releases, account: Payer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "WAIT", 0.1)
    unreliable.away = 1000
    await background.run(ledger.balance, account[0])
    monkeypatch.setattr(releases, "WAIT", 60)
    async with asyncio.timeout(2):
        await background.run(ledger.balance, account[0])
    unreliable.away = 0
    await background.close()
    started = threading.Event()
    await background.run(lambda _transaction: started.wait(0.1))
    assert background.running == 0


@pytest.mark.both_databases
async def test_a_claim_that_may_exist_is_abandoned(unreliable: UnreliableDatabase, background: Releases) -> None:
    service, request = IdempotencyService(unreliable, OWNER, background), open_request(unreliable)
    unreliable.loses = idempotency.begin
    with pytest.raises(CommitUnknown):
        await service.claim(request, {})
    await background.close()
    unreliable.loses = None
    assert isinstance(await service.claim(request, {}), Claim)


def open_request(database: Database) -> IdempotentRequest:
    return IdempotentRequest(open_account(database).id, "/", "key")


class PowerCut(NamedTuple):
    """The files after a power cut, and the number of charges that were reported before."""

    files: dict[str, bytes]
    reported: int


class Payers:
    """Operations of one account, each with a charge."""

    def __init__(self, url: str, files: SyncedFiles, random: Random) -> None:
        self.database = Database(url)
        self.releases = Releases(self.database)
        self.charges = Charges(self.database, ServerInstance("server", "first"), self.releases)
        self.account = open_account(self.database, CREDITS).id
        self.reported = 0
        self.cuts: list[PowerCut] = []
        self._key = self.database.run_blocking(api_keys.issue, self.account, "a key").key.key_id
        self._files, self._random = files, random

    async def pay(self, operations: int) -> None:
        """Charges one operation after the other."""
        for _ in range(operations):
            async with self.charges.hold(self.account, self._key, 1, USE, None) as charge:
                await charge.settle([("webp", 10)])
            self.reported += 1

    def cut(self) -> None:
        """Cuts the power at some of the times."""
        if self._random.random() < 0.5:
            self.cuts.append(PowerCut(self._files.after_power_cut(self._random), self.reported))


@pytest.fixture
async def payers(tmp_path: Path) -> AsyncIterator[tuple[Payers, SyncedFiles]]:
    path = tmp_path / "convertd.db"
    with recorded_syncs(path) as files:
        payers = Payers(f"sqlite:///{path}", files, Random(7))
        yield payers, files
        await payers.releases.close()
        payers.database.close()


async def test_reported_charges_survive_a_power_cut(payers: tuple[Payers, SyncedFiles], tmp_path: Path) -> None:
    clients, files = payers
    # Checkpoints, which move the commits from the log into the database, are frequent.
    clients.database.run_blocking(lambda t: t.connection.execute_sql("PRAGMA wal_autocheckpoint = 40"))
    files.before_sync = clients.cut
    await asyncio.gather(*(clients.pay(25) for _ in range(8)))

    assert clients.reported == 200
    assert len(clients.cuts) > 20
    for number, cut in enumerate(clients.cuts):
        folder = tmp_path / f"cut-{number}"
        folder.mkdir()
        for name, content in cut.files.items():
            (folder / name).write_bytes(content)
        with closing(Database(f"sqlite:///{folder / 'convertd.db'}")) as database:
            database.run_blocking(servers.beat, ServerInstance("server", "second"))
            database.run_blocking(servers.give_back)
            database.run_blocking(ledger.release_expired)
            charged = CREDITS - database.run_blocking(ledger.balance, clients.account)
            assert cut.reported <= charged <= cut.reported + 8
            assert database.run_blocking(ledger_audit.check) == ()


async def test_only_the_settlement_waits_for_the_disk(payers: tuple[Payers, SyncedFiles]) -> None:
    clients, files = payers
    await clients.pay(1)
    before = files.syncs
    await clients.pay(50)

    assert files.syncs - before == 50
