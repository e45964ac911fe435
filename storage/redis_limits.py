"""Request limits that several processes share in Redis, and those of one process while Redis is away."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from storage.limits import Limiter, Verdict

log = logging.getLogger("convertd.limits")

_PREFIX = "convertd:limit:"
_PATIENCE = 0.1  # seconds
_PAUSE = 5.0  # seconds
_CONNECTIONS = 16

# KEYS[1]  a window: a hash of its `count` and its `end`
# ARGV[1]  the requests that are allowed
# ARGV[2]  the length of a window
# ARGV[3]  1 to count a request, 0 to look
# Returns whether a request is allowed (1 or 0), the count, the window's end, and the time now.
# All times are milliseconds by the clock of the Redis server, which all processes share.
_SCRIPT = """
local limit, length = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'count', 'end')
local count, ends = tonumber(found[1] or 0), tonumber(found[2] or 0)
-- An end too far away is one from before the clock was set back.
if ends <= now or ends > now + length then
    count, ends = 0, now + length
end
local allowed = count < limit and 1 or 0
if allowed == 1 and ARGV[3] == '1' then
    count = count + 1
    redis.call('HSET', KEYS[1], 'count', count, 'end', ends)
    redis.call('PEXPIREAT', KEYS[1], ends)
end
return {allowed, count, ends, now}
"""


class RedisLimiter:
    """The limits of all processes that use this Redis, in one round trip a request.

    Raises RedisError or OSError where Redis does not answer within `patience` seconds.
    """

    def __init__(self, url: str, *, patience: float = _PATIENCE) -> None:
        self._patience = patience
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=patience,
            socket_timeout=patience,
            socket_connect_timeout=patience,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # connects in fewer round trips
        )
        self._redis = Redis.from_pool(pool)
        self._script = self._redis.register_script(_SCRIPT)

    async def hit(self, key: str, limit: int, window: int) -> Verdict:
        return await self._ask(key, limit, window, hits=1)

    async def peek(self, key: str, limit: int, window: int) -> Verdict:
        return await self._ask(key, limit, window, hits=0)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _ask(self, key: str, limit: int, window: int, *, hits: int) -> Verdict:
        # To connect takes several answers, each of which may take its time: this bounds them all.
        async with asyncio.timeout(self._patience):
            answer = await self._script(keys=[f"{_PREFIX}{window}:{key}"], args=[limit, window * 1000, hits])
        allowed, count, end, now = cast(list[int], answer)
        left = max(1, math.ceil((end - now) / 1000))
        return Verdict(bool(allowed), limit, max(0, limit - count), math.ceil(end / 1000), left)


class FailoverLimiter:
    """Asks `shared`, and `local` while `shared` fails: limits then hold for each process by itself.

    After a failure nobody asks `shared` for `pause` seconds. Then one request does, and the others wait for
    what it finds without being delayed.
    """

    def __init__(self, shared: Limiter, local: Limiter, *, pause: float = _PAUSE) -> None:
        self._shared = shared
        self._local = local
        self._pause = pause
        self._retry_at: float | None = None  # on the monotonic clock; None while `shared` answers

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
