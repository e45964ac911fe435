"""The inventory: what there is in the database and on the disk, looked up for the metrics from time to time."""

from __future__ import annotations

import asyncio
import logging
import shutil
from itertools import count
from pathlib import Path

from storage import batches, email_verification, idempotency, ledger, purchases, sessions, totals
from storage.database import Database
from storage.ids import new_id
from storage.ledger import ServerInstance
from web.metrics.service import TotalsMetrics
from web.services.charging import Charges
from web.services.files import Files
from web.services.idempotency import IdempotencyService


class TotalsUpdater:
    """Of everything below the data folder."""

    def __init__(self, database: Database, data_dir: Path, metrics: TotalsMetrics) -> None:
        self._database = database
        self._data_dir = data_dir
        self._metrics = metrics

    async def take(self) -> None:
        """Looks everything up, and tells the metrics."""
        found = await self._database.run(totals.read)
        disk = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
        self._metrics.found(found, disk.free)


log = logging.getLogger("convertd.upkeep")

_INTERVAL = 30  # seconds
_ORPHANS_EVERY = 60  # rounds: to look for them means to list all that is stored
_AT_ONCE = 500  # rows


def server_instance(data_dir: Path) -> ServerInstance:
    """This run of this server. The server keeps its name in the data folder."""
    path = data_dir / "server"
    if not path.exists():
        path.write_text(new_id("srv"))
    return ServerInstance(path.read_text().strip(), new_id("boot"))


class Maintenance:
    """Gives back credits that nobody holds any more, and erases what has expired or been left behind."""

    def __init__(
        self,
        database: Database,
        owner: ServerInstance,
        charges: Charges,
        repeats: IdempotencyService,
        files: Files,
        inventory: TotalsUpdater,
    ) -> None:
        self._database = database
        self._owner = owner
        self._charges = charges
        self._repeats = repeats
        self._files = files
        self._inventory = inventory

    async def begin(self) -> None:
        """What an earlier run of this server left behind."""
        if holds := await self._charges.recover():
            log.warning("credits of %d operations that were cut off are given back", holds)
        await self._repeats.recover()
        await self._database.run(batches.recover, self._owner)

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        for round_ in count():
            try:
                await self._sweep()
                if round_ % _ORPHANS_EVERY == 0:
                    await self._files.sweep_orphans()
            except Exception:
                log.exception("upkeep failed; it is tried again in %d s", _INTERVAL)
            await asyncio.sleep(_INTERVAL)

    async def _sweep(self) -> None:
        if holds := await self._database.run(ledger.release_expired):
            log.warning("%d holds ran out and were given back", holds)
        await self._database.run(idempotency.delete_expired)
        await self._database.run(email_verification.delete_expired)
        await self._database.run(purchases.delete_abandoned)
        await self._database.run(sessions.delete_expired)
        await self._files.sweep()
        while await self._database.run(batches.delete_expired, _AT_ONCE):
            pass
        await self._inventory.take()
