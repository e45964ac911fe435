"""The request log: kept in memory and written to the database once a second, so that requests do not wait for it."""

from __future__ import annotations

import asyncio
import logging

from storage.database import Database
from storage.tables import request_log
from storage.tables.request_log import LoggedRequest

log = logging.getLogger("convertd.request_log")

_INTERVAL = 1.0  # seconds
_CAPACITY = 20_000  # unwritten requests; further ones are not logged
_BATCH_SIZE = 500  # rows


class RequestLog:
    """The latest requests of every account."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unwritten: list[LoggedRequest] = []
        self._writing = asyncio.Lock()

    def record(self, request: LoggedRequest) -> None:
        """Adds a request."""
        if len(self._unwritten) < _CAPACITY:
            self._unwritten.append(request)

    async def latest(self, account: str) -> tuple[LoggedRequest, ...]:
        """Returns the account's latest requests, newest first, including unwritten ones."""
        await self.write()
        return await self._database.read(request_log.latest, account)

    async def write(self) -> None:
        """Writes all recorded requests."""
        async with self._writing:
            while batch := self._unwritten[:_BATCH_SIZE]:
                await self._database.run(request_log.record, batch)
                del self._unwritten[: len(batch)]

    async def run(self) -> None:
        """Writes periodically until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self._try_to_write()

    async def close(self) -> None:
        """Writes all recorded requests; a failure is only logged."""
        await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except Exception:
            log.warning("the request log could not be written", exc_info=True)
