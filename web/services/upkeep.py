"""Upkeep: what is done at the start and every half minute, whether anybody asks or not."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from pathlib import Path

from storage import batches, idempotency, ledger, purchases, registration, sessions
from storage.database import Database
from storage.ids import new_id
from storage.ledger import Owner
from web.services.charges import Charges
from web.services.files import Files
from web.services.inventory import Inventory
from web.services.repeats import Repeats

log = logging.getLogger("convertd.upkeep")

_PAUSE = 30  # seconds
_ORPHANS_EVERY = 60  # rounds: to look for them means to list all that is stored
_AT_ONCE = 500  # rows


def owner(data_dir: Path) -> Owner:
    """This run of this server. The server keeps its name in the data folder."""
    path = data_dir / "server"
    if not path.exists():
        path.write_text(new_id("srv"))
    return Owner(path.read_text().strip(), new_id("boot"))


class Upkeep:
    """Gives back credits that nobody holds any more, and erases what has expired or been left behind."""

    def __init__(
        self,
        database: Database,
        owner: Owner,
        charges: Charges,
        repeats: Repeats,
        files: Files,
        inventory: Inventory,
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
                log.exception("upkeep failed; it is tried again in %d s", _PAUSE)
            await asyncio.sleep(_PAUSE)

    async def _sweep(self) -> None:
        if holds := await self._database.run(ledger.sweep):
            log.warning("%d holds ran out and were given back", holds)
        await self._database.run(idempotency.sweep)
        await self._database.run(registration.sweep)
        await self._database.run(purchases.sweep)
        await self._database.run(sessions.sweep)
        await self._files.sweep()
        while await self._database.run(batches.expired, _AT_ONCE):
            pass
        await self._inventory.take()
