"""Processes of one fork server, some forked ahead, each for one job."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from engine.errors import ConversionError
from engine.forkserver import ForkServer, Seat

_PATIENCE = 5.0  # seconds that a process may take to end after its answer


class Pool:
    """Keeps `size` processes forked ahead once it has started, or once jobs have been run."""

    def __init__(self, forkserver: ForkServer, size: int) -> None:
        self._forkserver = forkserver
        self._size = size
        self._spares: deque[Seat] = deque()
        self._awaited = 0  # spares that are being forked
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts the fork server and forks ahead. Raises WorkerCrashed."""
        for _ in range(self._size):
            await self._fork()

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes and the fork server."""
        while self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        while self._spares:
            await asyncio.to_thread(self._spares.popleft().close, _PATIENCE)
        await asyncio.to_thread(self._forkserver.close)

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[Seat]:
        """A process that waits for a job, and is killed afterwards with all that it started. Raises WorkerCrashed."""
        while not self._spares:
            # Shielded: a process that nobody waits for any more is a spare.
            await asyncio.shield(self._begun(self._fork()))
        seat = self._spares.popleft()
        try:
            yield seat
        finally:
            seat.kill()
            # Only now: while the job runs, the processor is better left to it.
            self._begun(self._replace(seat))

    async def ready(self) -> bool:
        """Whether there can be a process now."""
        return await asyncio.to_thread(self._forks)

    def _forks(self) -> bool:
        """As `ready`; the process is gone by then, even if nobody waits for the answer. Blocks."""
        try:
            self._forkserver.fork().close(_PATIENCE)
        except ConversionError:
            return False
        return True

    async def _replace(self, seat: Seat) -> None:
        await asyncio.gather(self._refill(), asyncio.to_thread(seat.close, _PATIENCE))

    async def _refill(self) -> None:
        if len(self._spares) + self._awaited < self._size:
            await self._fork()

    async def _fork(self) -> None:
        self._awaited += 1
        try:
            self._spares.append(await asyncio.to_thread(self._forkserver.fork))
        finally:
            self._awaited -= 1

    def _begun(self, chore: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task
