"""The request log: noted in memory when a request is over, written a moment later, so that no request waits for it."""

from __future__ import annotations

import asyncio
import logging

from storage import request_log
from storage.database import Database
from storage.request_log import LoggedRequest

log = logging.getLogger("convertd.requests")

_INTERVAL = 1.0  # seconds
_CAPACITY = 20_000  # requests that wait to be written; more are not noted
_BATCH_SIZE = 500


class RequestLog:
    """The latest requests of every account."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[LoggedRequest] = []
        self._writing = asyncio.Lock()

    def note(self, request: LoggedRequest) -> None:
        """Takes a request down."""
        if len(self._waiting) < _CAPACITY:
            self._waiting.append(request)

    async def latest(self, account: str) -> tuple[LoggedRequest, ...]:
        """The account's latest requests, those that have just ended included; the latest first."""
        await self.write()
        return await self._database.run(request_log.latest, account)

    async def write(self) -> None:
        """Writes what has been noted."""
        async with self._writing:
            while some := self._waiting[:_BATCH_SIZE]:
                await self._database.run(request_log.record, some)
                del self._waiting[: len(some)]

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self._try_to_write()

    async def close(self) -> None:
        """Writes what is left."""
        await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except Exception:
            log.warning("the request log could not be written", exc_info=True)
