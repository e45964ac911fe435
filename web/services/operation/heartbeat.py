"""Heartbeat: tells other servers that this one is alive, and gives back what those own that have stopped."""

import asyncio
import logging
from contextlib import suppress
from time import time

from storage.database import Database
from storage.errors import StorageError
from storage.tables import ledger, servers
from storage.tables.ledger import FOREVER, ServerInstance

log = logging.getLogger("convertd.heartbeat")


class Heartbeat:
    """Signs of life from `start` to `close`, every `servers.INTERVAL` seconds. `owner` is this run of this server."""

    def __init__(self, database: Database, owner: ServerInstance) -> None:
        self._database = database
        self._owner = owner
        self._beating: asyncio.Task[None] | None = None
        self._beat_at = time()  # the clock of the database, which also runs while the machine is suspended

    async def start(self) -> None:
        """Gives the first sign of life, and gives back what earlier runs of this server have left."""
        await self._database.run(servers.beat, self._owner)
        await self._give_back(FOREVER)
        self._beating = asyncio.create_task(self._beat_on())

    async def close(self) -> None:
        """Ends the signs of life. Other servers give back at once what this one still owns."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        with suppress(StorageError):  # it counts as stopped later
            await self._database.run(servers.leave, self._owner)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(servers.INTERVAL)
            try:
                await self._beat()
            except StorageError as error:
                log.warning("no sign of life: %s", error, extra={"outage": True})
            except Exception:
                log.exception("no sign of life")

    async def _beat(self) -> None:
        await self._database.run(servers.beat, self._owner)
        now = time()
        since_last = now - self._beat_at
        self._beat_at = now
        # After an outage in which this server could give no sign of life, others could not, either, and do it now.
        if since_last <= servers.TIMEOUT / 2 and await self._database.run(servers.any_stopped):
            await self._give_back(servers.TIMEOUT)

    async def _give_back(self, silence: int) -> None:
        await self._database.run(servers.give_back, silence)
        if holds := await self._database.run(ledger.release_expired):
            log.warning("released the holds of %d interrupted operations", holds)
