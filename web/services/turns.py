"""Who converts when: so many at a time in all and for each account, the rest in line for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from web.errors import RateLimited

_RETRY_AFTER = 5  # seconds


class Turns:
    """At most `slots` turns at a time. At most `capacity` wait, in the order they came, `patience` seconds."""

    def __init__(self, slots: int, *, patience: float = 30.0, capacity: int = 100) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._patience = patience
        self._capacity = capacity
        self._waiting = 0
        # An account's semaphore lives as long as somebody holds it or waits for it.
        self._accounts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, account_id: str, limit: int) -> AsyncIterator[None]:
        """A turn of an account that may have `limit` at a time. Raises RateLimited, reason `queue_full`."""
        own = self._accounts.get(account_id)
        if own is None:
            own = self._accounts[account_id] = asyncio.Semaphore(limit)
        async with AsyncExitStack() as held:
            await self._wait(held, own)
            yield

    async def _wait(self, held: AsyncExitStack, own: asyncio.Semaphore) -> None:
        if self._waiting >= self._capacity:
            raise _full("Too many conversions are waiting.")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await held.enter_async_context(own)
                await held.enter_async_context(self._slots)
        except TimeoutError:
            raise _full(f"No conversion could start within {self._patience:g} s.") from None
        finally:
            self._waiting -= 1


def _full(message: str) -> RateLimited:
    return RateLimited(message, retry_after=_RETRY_AFTER, reason="queue_full")
