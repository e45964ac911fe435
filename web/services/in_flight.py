"""The requests that are being answered, so that stopping can wait for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class InFlightRequests:
    """Requests by id. Leaving twice does no harm: there are several ways for a request to end."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[str] = set()
        self._calm = asyncio.Event()
        self._calm.set()

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        return len(self._running)

    def enter(self, request_id: str) -> None:
        """A request has begun."""
        self._running.add(request_id)
        self._calm.clear()

    def leave(self, request_id: str) -> None:
        """A request has been answered, or its client has gone."""
        self._running.discard(request_id)
        if not self._running:
            self._calm.set()

    async def drain(self, seconds: float) -> None:
        """Tells clients to close, and waits until no request runs, at most so long."""
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calm.wait()
