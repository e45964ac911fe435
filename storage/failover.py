"""What to do while Redis is away: each process counts by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from storage.limits import Limiter, Verdict

log = logging.getLogger("convertd.limits")

_PAUSE = 5.0  # seconds


class FailoverLimiter:
    """Asks `shared`, and `local` while `shared` fails: limits then hold for each process by itself.

    After a failure nobody asks `shared` for `pause` seconds. Then one request tries, while `local` goes on for the
    others; if it fails, nobody asks for another pause.
    """

    def __init__(self, shared: Limiter, local: Limiter, *, pause: float = _PAUSE) -> None:
        self._shared = shared
        self._local = local
        self._pause = pause
        self._retry_at: float | None = None  # on the monotonic clock; None while `shared` answers

    @property
    def failing(self) -> bool:
        """Whether `local` stands in."""
        return self._retry_at is not None

    async def hit(self, key: str, limit: int, window: int) -> Verdict:
        return await self._first_to_answer(lambda limiter: limiter.hit(key, limit, window))

    async def peek(self, key: str, limit: int, window: int) -> Verdict:
        return await self._first_to_answer(lambda limiter: limiter.peek(key, limit, window))

    async def close(self) -> None:
        await self._shared.close()
        await self._local.close()

    async def _first_to_answer(self, ask: Callable[[Limiter], Awaitable[Verdict]]) -> Verdict:
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
