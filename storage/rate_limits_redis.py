"""Rate limits shared by several processes: one Lua script in Redis."""

import asyncio
import math

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from storage.rate_limits import RateLimitStatus

_PREFIX = "convertd:limit:"
_TIMEOUT = 0.1  # seconds
_TICKS = 5  # per timeout
_CONNECTIONS = 16

# KEYS[1]  a window: a hash of its `count` and its `end`
# ARGV[1]  number of allowed requests
# ARGV[2]  length of the window
# ARGV[3]  1 to count a request, 0 to only read
# Returns whether a request is allowed (1 or 0), the count, the end of the window, and the current time.
# All times are milliseconds by the clock of the Redis server, which all processes share.
_SCRIPT = """
local limit, length = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = redis.call('HMGET', KEYS[1], 'count', 'end')
local count, ends = tonumber(window[1] or 0), tonumber(window[2] or 0)
-- A later end means that the clock was set back.
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


class RedisRateLimiter:
    """Limits shared by all processes that use this Redis.

    Methods raise RedisError or OSError (TimeoutError included) if Redis does not respond within `timeout` seconds. A
    pause of the event loop counts as a fifth of the timeout, however long it is: it is no failure of Redis.
    """

    def __init__(self, url: str, *, timeout: float = _TIMEOUT) -> None:
        self._timeout = timeout
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=None,  # waiting for a connection counts towards the timeout of the call
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # connects in fewer round trips
        )
        self._redis = Redis.from_pool(pool)
        self._script = self._redis.register_script(_SCRIPT)

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._run(key, limit, window, count=1)

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._run(key, limit, window, count=0)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _run(self, key: str, limit: int, window: int, *, count: int) -> RateLimitStatus:
        call = asyncio.ensure_future(
            self._script(keys=[f"{_PREFIX}{window}:{key}"], args=[limit, window * 1000, count])
        )
        try:
            for _ in range(_TICKS):
                if (await asyncio.wait([call], timeout=self._timeout / _TICKS))[0]:
                    break
            else:
                raise TimeoutError
        finally:
            call.cancel()
        allowed, used, end, now = call.result()
        retry_after = max(1, math.ceil((end - now) / 1000))
        remaining = max(0, limit - used)
        return RateLimitStatus(bool(allowed), limit, remaining, math.ceil(end / 1000), retry_after, window)
