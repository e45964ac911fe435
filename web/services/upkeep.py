"""Upkeep: what is done at the start and every half minute, whether anybody asks or not."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from storage import idempotency, ledger, purchases, registration
from storage.database import Database
from storage.ids import new_id
from storage.ledger import Owner
from web.services.charges import Charges
from web.services.repeats import Repeats
from web.services.results import Results

log = logging.getLogger("convertd.upkeep")

_PAUSE = 30  # seconds


def owner(data_dir: Path) -> Owner:
    """This run of this server. The server keeps its name in the data folder."""
    path = data_dir / "server"
    if not path.exists():
        path.write_text(new_id("srv"))
    return Owner(path.read_text().strip(), new_id("boot"))


class Upkeep:
    """Gives back credits that nobody holds any more, and forgets what has expired."""

    def __init__(self, database: Database, charges: Charges, repeats: Repeats, results: Results) -> None:
        self._database = database
        self._charges = charges
        self._repeats = repeats
        self._results = results

    async def begin(self) -> None:
        """What an earlier run of this server left behind."""
        if holds := await self._charges.recover():
            log.warning("credits of %d operations that were cut off are given back", holds)
        await self._repeats.recover()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            try:
                await self._sweep()
            except Exception:
                log.exception("upkeep failed; it is tried again in %d s", _PAUSE)
            await asyncio.sleep(_PAUSE)

    async def _sweep(self) -> None:
        if holds := await self._database.run(ledger.sweep):
            log.warning("%d holds ran out and were given back", holds)
        await self._database.run(idempotency.sweep)
        await self._database.run(registration.sweep)
        await self._database.run(purchases.sweep)
        await self._results.sweep()
