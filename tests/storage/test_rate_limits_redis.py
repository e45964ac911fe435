"""Rate limits in Redis: shared, one command per request, with a local fallback."""

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from benchmarks.processes import free_port
from benchmarks.redis_server import RedisServer
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter, RateLimitStatus
from storage.rate_limits_redis import RedisRateLimiter
from tests.storage.conftest import LONG_TIMEOUT

RETRY_INTERVAL = 0.5  # seconds
LONG_RETRY_INTERVAL = 2.0
KEY = "convertd:limit:60:a"


async def test_processes_share_their_limits(redis_server: RedisServer, redis_limiter: RedisRateLimiter) -> None:
    other = RedisRateLimiter(redis_server.url, timeout=LONG_TIMEOUT)
    hits = [limiter.hit("a", 50, 60) for _ in range(100) for limiter in (redis_limiter, other)]
    statuses = await asyncio.gather(*hits)
    await other.close()
    assert sorted(status.remaining for status in statuses if status.allowed) == list(range(50))


async def test_keys_have_a_prefix_and_expire(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 1, 60)
    await redis_limiter.peek("b", 1, 60)
    assert await redis.keys("*") == [KEY.encode()]
    assert 50_000 < await redis.pttl(KEY) <= 60_000


async def test_one_command_per_request(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 100, 60)
    await redis.config_resetstat()
    for _ in range(10):
        await redis_limiter.hit("a", 100, 60)
    stats = await redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 10
    assert "cmdstat_script|load" not in stats


async def test_the_script_is_loaded_again_after_a_flush(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 2, 60)
    await redis.script_flush()
    assert (await redis_limiter.hit("a", 2, 60)).remaining == 0


async def test_a_clock_set_back_does_not_extend_a_window(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 1, 60)
    await redis.hincrby(KEY, "end", 86_400_000)
    assert (await redis_limiter.hit("a", 1, 60)).retry_after == 60


async def test_a_briefly_blocked_event_loop_causes_no_timeout(redis_server: RedisServer, redis: Redis) -> None:
    limiter = RedisRateLimiter(redis_server.url, timeout=1)
    asyncio.get_running_loop().call_later(0.001, time.sleep, 1.5)
    statuses = await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(100)))
    await limiter.close()
    assert sorted(status.remaining for status in statuses) == list(range(900, 1000))


async def test_late_responses_are_discarded(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        limiter = RedisRateLimiter(server.url, timeout=1)
        await limiter.hit("a", 10, 60)
        server.stall()
        failures = await asyncio.gather(*(limiter.hit("a", 10, 60) for _ in range(3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [TimeoutError] * 3
        server.resume()
        statuses = await asyncio.gather(limiter.hit("b", 20, 60), limiter.peek("c", 30, 60), limiter.hit("b", 20, 60))
        await limiter.close()
    assert sorted((status.limit, status.remaining) for status in statuses) == [(20, 18), (20, 19), (30, 30)]


async def test_a_cancelled_call_does_not_affect_others(redis_limiter: RedisRateLimiter) -> None:
    hits = [asyncio.ensure_future(redis_limiter.hit("a", 10, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    hits[0].cancel()
    await asyncio.wait(hits)
    assert [hit.cancelled() for hit in hits] == [True, False, False]
    assert (await redis_limiter.hit("a", 10, 60)).remaining in (6, 7)


async def test_limits_are_local_without_redis(caplog: pytest.LogCaptureFixture) -> None:
    limiter = FailoverRateLimiter(RedisRateLimiter(f"redis://:secret@127.0.0.1:{free_port()}"), MemoryRateLimiter())
    statuses = [await limiter.hit("a", 3, 60) for _ in range(5)]
    await limiter.close()
    assert [status.remaining for status in statuses] == [2, 1, 0, 0, 0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "secret" not in caplog.text


@dataclass
class CountedRateLimiter:
    """Counts the calls of another limiter."""

    limiter: RateLimiter
    calls: int = 0

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        self.calls += 1
        return await self.limiter.hit(key, limit, window)

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        self.calls += 1
        return await self.limiter.peek(key, limit, window)

    async def close(self) -> None:
        await self.limiter.close()


async def test_a_stall_delays_one_request_per_retry_interval(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path) as server:
        shared = CountedRateLimiter(RedisRateLimiter(server.url, timeout=1))
        limiter = FailoverRateLimiter(shared, MemoryRateLimiter(), retry_interval=LONG_RETRY_INTERVAL)
        assert (await limiter.hit("a", 1000, 60)).remaining == 999
        server.stall()
        for _ in range(50):
            await limiter.hit("a", 1000, 60)
        assert shared.calls == 2
        await asyncio.sleep(LONG_RETRY_INTERVAL)
        await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(50)))
        assert shared.calls == 3
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "Redis unavailable, rate limits apply per process"
        ]
        await limiter.close()


async def test_redis_is_used_again_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path) as server:
        limiter = FailoverRateLimiter(
            RedisRateLimiter(server.url, timeout=LONG_TIMEOUT), MemoryRateLimiter(), retry_interval=RETRY_INTERVAL
        )
        await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(5)))
        server.kill()
        assert (await limiter.hit("a", 1000, 60)).remaining == 999
        server.start()
        await asyncio.sleep(RETRY_INTERVAL)
        statuses = await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(5)))
        # One request uses Redis, which has lost its counts; the others do not wait for it.
        assert sorted(status.remaining for status in statuses) == [995, 996, 997, 998, 999]
        assert (await limiter.hit("a", 1000, 60)).remaining == 998
        await limiter.close()
    assert "shared again" in caplog.records[-1].message
    assert len(caplog.records) == 2
