"""The request log: noted in memory when a request is over, written a moment later, so that no request waits for it."""

from __future__ import annotations

import asyncio
import logging

from storage import requests
from storage.database import Database
from storage.requests import Request

log = logging.getLogger("convertd.requests")

_PAUSE = 1.0  # seconds
_MOST = 20_000  # requests that wait to be written; more are not noted
_AT_ONCE = 500


class RequestLog:
    """The latest requests of every account."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[Request] = []
        self._writing = asyncio.Lock()

    def note(self, request: Request) -> None:
        """Takes a request down."""
        if len(self._waiting) < _MOST:
            self._waiting.append(request)

    async def latest(self, account: str) -> tuple[Request, ...]:
        """The account's latest requests, those that have just ended included; the latest first."""
        await self.write()
        return await self._database.run(requests.latest, account)

    async def write(self) -> None:
        """Writes what has been noted."""
        async with self._writing:
            while some := self._waiting[:_AT_ONCE]:
                await self._database.run(requests.record, some)
                del self._waiting[: len(some)]

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(_PAUSE)
            await self._try_to_write()

    async def close(self) -> None:
        """Writes what is left."""
        await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except Exception:
            log.warning("the request log could not be written", exc_info=True)
