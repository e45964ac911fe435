"""Request limits: so many in a window that opens with its first request."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RateLimitStatus:
    """Whether a request is allowed, and where its key stands after it."""

    allowed: bool
    limit: int
    remaining: int
    reset_unix: int  # the window's end in whole seconds of Unix time, rounded up
    retry_after: int  # whole seconds until the window's end, at least 1


class RateLimiter(Protocol):
    """Counts requests by key. A window opens with the first request and lasts `window` seconds.

    A request that is not allowed is not counted, so one that waits for the window's end always succeeds.
    """

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        """Counts one request if that is allowed."""

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        """Where the key stands, with nothing counted; `allowed` tells what a request would find."""

    async def close(self) -> None:
        """Gives back what it holds."""


@dataclass
class _Window:
    end: float
    count: int = 0


class MemoryRateLimiter:
    """The limits of one process. Of each length it keeps at most `capacity` windows and forgets the oldest."""

    def __init__(self, *, capacity: int = 100_000, clock: Callable[[], float] = time.time) -> None:
        self._capacity = capacity
        self._clock = clock
        # By length, so that each mapping stands in the order in which its windows end.
        self._windows: dict[int, dict[str, _Window]] = {}

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        now = self._clock()
        current = self._current(key, window, now)
        if current is None:
            current = self._opened(key, window, now)
        allowed = current.count < limit
        current.count += allowed
        return _status(allowed, limit, current, now)

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        now = self._clock()
        current = self._current(key, window, now) or _Window(now + window)
        return _status(current.count < limit, limit, current, now)

    async def close(self) -> None:
        self._windows.clear()

    def _current(self, key: str, window: int, now: float) -> _Window | None:
        found = self._windows.get(window, {}).get(key)
        # An end too far away is one from before the clock was set back.
        return found if found and now < found.end <= now + window else None

    def _opened(self, key: str, window: int, now: float) -> _Window:
        windows = self._windows.setdefault(window, {})
        windows.pop(key, None)
        while windows:
            oldest = next(iter(windows))
            if windows[oldest].end > now and len(windows) < self._capacity:
                break
            del windows[oldest]
        windows[key] = opened = _Window(now + window)
        return opened


def unused(limit: int, window: int, now: float) -> RateLimitStatus:
    """The verdict on somebody who has not asked for anything."""
    return _status(True, limit, _Window(now + window), now)


def _status(allowed: bool, limit: int, window: _Window, now: float) -> RateLimitStatus:
    remaining = max(0, limit - window.count)
    return RateLimitStatus(allowed, limit, remaining, math.ceil(window.end), max(1, math.ceil(window.end - now)))


log = logging.getLogger("convertd.limits")

_RETRY_INTERVAL = 5.0  # seconds


class FailoverRateLimiter:
    """Asks `shared`, and `local` while `shared` fails: limits then hold for each process by itself.

    After a failure nobody asks `shared` for `pause` seconds. Then one request tries, while `local` goes on for the
    others; if it fails, nobody asks for another pause.
    """

    def __init__(self, shared: RateLimiter, local: RateLimiter, *, pause: float = _RETRY_INTERVAL) -> None:
        self._shared = shared
        self._local = local
        self._pause = pause
        self._retry_at: float | None = None  # on the monotonic clock; None while `shared` answers

    @property
    def failing(self) -> bool:
        """Whether `local` stands in."""
        return self._retry_at is not None

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._first_to_answer(lambda limiter: limiter.hit(key, limit, window))

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._first_to_answer(lambda limiter: limiter.peek(key, limit, window))

    async def close(self) -> None:
        await self._shared.close()
        await self._local.close()

    async def _first_to_answer(self, ask: Callable[[RateLimiter], Awaitable[RateLimitStatus]]) -> RateLimitStatus:
        again = self._retry_at is not None
        if not self._may_ask():
            return await ask(self._local)
        try:
            verdict = await ask(self._shared)
        except Exception as error:  # whatever it is, no request fails because it could not be counted
            self._failed(error)
            return await ask(self._local)
        if again:
            self._recovered()
        return verdict

    def _may_ask(self) -> bool:
        if self._retry_at is None:
            return True
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + self._pause
        return True

    def _failed(self, error: Exception) -> None:
        if self._retry_at is None:
            reason = f"{type(error).__name__} {error}".strip()
            log.warning("limits hold for each process by itself, until Redis answers: %s", reason)
        self._retry_at = time.monotonic() + self._pause

    def _recovered(self) -> None:
        if self._retry_at is not None:
            log.warning("limits hold for all processes again: Redis answers")
        self._retry_at = None
