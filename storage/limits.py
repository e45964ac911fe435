"""Request limits: so many in a window that opens with its first request."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Verdict:
    """Whether a request is allowed, and where its key stands after it."""

    allowed: bool
    limit: int
    remaining: int
    reset_unix: int  # the window's end in whole seconds of Unix time, rounded up
    retry_after: int  # whole seconds until the window's end, at least 1


class Limiter(Protocol):
    """Counts requests by key. A window opens with the first request and lasts `window` seconds.

    A request that is not allowed is not counted, so one that waits for the window's end always succeeds.
    """

    async def hit(self, key: str, limit: int, window: int) -> Verdict:
        """Counts one request if that is allowed."""

    async def peek(self, key: str, limit: int, window: int) -> Verdict:
        """Where the key stands, with nothing counted; `allowed` tells what a request would find."""

    async def close(self) -> None:
        """Gives back what it holds."""


@dataclass
class _Window:
    end: float
    count: int = 0


class MemoryLimiter:
    """The limits of one process. Of each length it keeps at most `capacity` windows and forgets the oldest."""

    def __init__(self, *, capacity: int = 100_000, clock: Callable[[], float] = time.time) -> None:
        self._capacity = capacity
        self._clock = clock
        # By length, so that each mapping stands in the order in which its windows end.
        self._windows: dict[int, dict[str, _Window]] = {}

    async def hit(self, key: str, limit: int, window: int) -> Verdict:
        now = self._clock()
        current = self._current(key, window, now)
        if current is None:
            current = self._opened(key, window, now)
        allowed = current.count < limit
        current.count += allowed
        return _verdict(allowed, limit, current, now)

    async def peek(self, key: str, limit: int, window: int) -> Verdict:
        now = self._clock()
        current = self._current(key, window, now) or _Window(now + window)
        return _verdict(current.count < limit, limit, current, now)

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


def fresh(limit: int, window: int, now: float) -> Verdict:
    """The verdict on somebody who has not asked for anything."""
    return _verdict(True, limit, _Window(now + window), now)


def _verdict(allowed: bool, limit: int, window: _Window, now: float) -> Verdict:
    remaining = max(0, limit - window.count)
    return Verdict(allowed, limit, remaining, math.ceil(window.end), max(1, math.ceil(window.end - now)))
