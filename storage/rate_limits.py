"""Rate limits: a number of requests per window, in memory or with a fallback while Redis is unavailable."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

log = logging.getLogger("convertd.limits")

_RETRY_INTERVAL = 5.0  # seconds


@dataclass(frozen=True)
class RateLimitStatus:
    """Whether a request is allowed, and the state of its key's window after it.

    `reset` is rounded up. `retry_after` is the number of seconds until then, at least 1. `window` is in seconds.
    """

    allowed: Annotated[bool, Field(exclude=True)]
    limit: Annotated[int, Field(ge=1, description="Requests per window.", examples=[60])]
    remaining: Annotated[int, Field(ge=0, examples=[59])]
    reset: Annotated[int, Field(description="End of the window in Unix time (seconds).", examples=[1795238640])]
    retry_after: Annotated[int, Field(exclude=True)]
    window: Annotated[int, Field(exclude=True)]


class RateLimiter(Protocol):
    """Counts requests by key. A window starts with its first request and lasts `window` seconds.

    Refused requests are not counted, so a request after the end of the window succeeds.
    """

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        """Counts one request if it is allowed."""

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        """Returns the state of the key without counting. `allowed` is the value that `hit` would return."""

    async def close(self) -> None:
        """Closes connections."""


@dataclass
class _Window:
    end: float
    count: int = 0


class MemoryRateLimiter:
    """Limits within one process. Drops the oldest windows beyond `capacity` per window length."""

    def __init__(self, *, capacity: int = 100_000, clock: Callable[[], float] = time.time) -> None:
        self._capacity = capacity
        self._clock = clock
        # By window length in seconds, so that each inner dict is ordered by the end of its windows.
        self._windows: dict[int, dict[str, _Window]] = {}

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return self._status(key, limit, window, count=True)

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return self._status(key, limit, window, count=False)

    async def close(self) -> None:
        self._windows.clear()

    def __len__(self) -> int:
        """Number of windows in memory."""
        return sum(map(len, self._windows.values()))

    def _status(self, key: str, limit: int, window: int, *, count: bool) -> RateLimitStatus:
        now = self._clock()
        current = self._windows.get(window, {}).get(key)
        if current is None or not now < current.end <= now + window:  # a later end: the clock was set back
            current = self._open(key, window, now) if count else _Window(now + window)
        allowed = current.count < limit
        if count:
            current.count += allowed
        remaining = max(0, limit - current.count)
        retry_after = max(1, math.ceil(current.end - now))
        return RateLimitStatus(allowed, limit, remaining, math.ceil(current.end), retry_after, window)

    def _open(self, key: str, window: int, now: float) -> _Window:
        windows = self._windows.setdefault(window, {})
        windows.pop(key, None)
        while windows:
            oldest = next(iter(windows))
            if windows[oldest].end > now and len(windows) < self._capacity:
                break
            del windows[oldest]
        windows[key] = _Window(now + window)
        return windows[key]


def unused(limit: int, window: int, now: float) -> RateLimitStatus:
    """Returns the status of a key without requests."""
    return RateLimitStatus(True, limit, limit, math.ceil(now + window), window, window)


class FailoverRateLimiter:
    """Uses `shared`, and `local` while `shared` fails; limits then apply per process.

    After a failure, one request every `retry_interval` seconds tries `shared`; all others use `local`.
    """

    def __init__(self, shared: RateLimiter, local: RateLimiter, *, retry_interval: float = _RETRY_INTERVAL) -> None:
        self._shared = shared
        self._local = local
        self._retry_interval = retry_interval
        self._retry_at: float | None = None  # monotonic time; None while `shared` works

    @property
    def failing(self) -> bool:
        """Whether `local` is in use."""
        return self._retry_at is not None

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._call(lambda limiter: limiter.hit(key, limit, window))

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._call(lambda limiter: limiter.peek(key, limit, window))

    async def close(self) -> None:
        await self._shared.close()
        await self._local.close()

    async def _call(self, method: Callable[[RateLimiter], Awaitable[RateLimitStatus]]) -> RateLimitStatus:
        was_failing = self.failing
        if self._retry_at is not None:
            now = time.monotonic()
            if now < self._retry_at:
                return await method(self._local)
            self._retry_at = now + self._retry_interval
        try:
            status = await method(self._shared)
        except Exception as error:  # a request must not fail because it cannot be counted
            if self._retry_at is None:
                reason = f"{type(error).__name__} {error}".strip()
                log.warning("Redis unavailable, rate limits apply per process: %s", reason)
            self._retry_at = time.monotonic() + self._retry_interval
            return await method(self._local)
        if was_failing and self._retry_at is not None:
            log.warning("Redis available, rate limits are shared again")
            self._retry_at = None
        return status
