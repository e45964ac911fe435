"""The requests in progress, so that a shutdown can wait for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class InFlightRequests:
    """The ids of requests in progress. `end` is idempotent, since a request can end in several ways."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Number of requests in progress."""
        return len(self._running)

    def begin(self, request_id: str) -> None:
        """Adds a request."""
        self._running.add(request_id)
        self._idle.clear()

    def end(self, request_id: str) -> None:
        """Removes a request that is complete or whose client has disconnected."""
        self._running.discard(request_id)
        if not self._running:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Marks the server as stopping and waits until no request is in progress, for at most `seconds`."""
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
