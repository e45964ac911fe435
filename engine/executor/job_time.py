"""The time of a job: its deadline, and how long a process has run it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.errors import TimedOut

STEP = 0.5
"""Seconds after which the time of a job is updated."""


class JobTime:
    """Counts up to `limit` seconds in steps. While this process is stopped, it counts two steps at most.

    Otherwise, the stop of a machine would look like a job that exceeds its limit.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._counted = 0.0
        self._latest_step = 0.0  # time of the event loop
        self._process_start: float | None = None
        self._stop: Callable[[], None] = lambda: None

    @property
    def total(self) -> float:
        """Seconds since the beginning of `limited`."""
        return self._counted + min(asyncio.get_running_loop().time() - self._latest_step, 2 * STEP)

    @property
    def of_process(self) -> float:
        """Seconds since `begin`; 0 before."""
        return 0.0 if self._process_start is None else self.total - self._process_start

    def begin(self) -> None:
        """Records that a process begins the job, which may have waited for one."""
        self._process_start = self.total

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Counts during the block, and cancels the block at the limit. Raises TimedOut."""
        try:
            async with asyncio.timeout(None) as deadline:
                self._latest_step = asyncio.get_running_loop().time()
                self._count(deadline)
                try:
                    yield
                finally:
                    self._stop()
        except TimeoutError:
            message = f"The conversion took longer than {self._limit:g} s."
            raise TimedOut(message, details={"max_seconds": self._limit}) from None

    def _count(self, deadline: asyncio.Timeout) -> None:
        """Counts up to now, and later again, or expires the deadline."""
        loop = asyncio.get_running_loop()
        self._counted, self._latest_step = self.total, loop.time()
        remaining = self._limit - self._counted
        if remaining > 0:
            self._stop = loop.call_later(min(STEP, remaining), self._count, deadline).cancel
        else:
            deadline.reschedule(self._latest_step)
