"""Power cuts at random moments: each charge that was reported is on the disk, once, and no credit stays held."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from storage.database import Database
from storage.tables import api_keys, ledger, ledger_audit
from storage.tables.ledger import ServerInstance
from storage.tables.usage import UsageRecord
from tests.support.samples.storage import open_account
from tests.support.servers.power_cuts import SyncedFiles, recorded_syncs
from web.services.conversions.charging import Charges
from web.services.conversions.releases import Releases

USE = UsageRecord("convert", "png", "webp", 1)
CREDITS = 1000


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
    clients.database.run_blocking(
        lambda transaction: transaction.connection.execute_sql("PRAGMA wal_autocheckpoint = 40")
    )
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
            database.run_blocking(ledger.recover, ServerInstance("server", "second"))
            charged = CREDITS - database.run_blocking(ledger.balance, clients.account)
            assert cut.reported <= charged <= cut.reported + 8
            assert database.run_blocking(ledger_audit.check) == ()


async def test_only_the_settlement_waits_for_the_disk(payers: tuple[Payers, SyncedFiles]) -> None:
    clients, files = payers
    await clients.pay(1)
    before = files.syncs
    await clients.pay(50)

    assert files.syncs - before == 50
