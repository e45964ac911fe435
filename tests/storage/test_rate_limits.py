"""Rate limits: properties of all implementations; in memory, exact times and bounds; in Redis, outages."""

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from benchmarks.processes import RedisServer, free_port
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter, RateLimitStatus, unused
from storage.rate_limits_redis import RedisRateLimiter
from tests.storage.conftest import LONG_TIMEOUT
from tests.support.samples.storage import Clock

DAY = 86_400
RETRY_INTERVAL = 0.5  # seconds
LONG_RETRY_INTERVAL = 2.0
KEY = "convertd:limit:60:a"


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


async def test_the_limit_of_a_window(limiter: RateLimiter) -> None:
    before = time.time()
    statuses = [await limiter.hit("a", 3, 60) for _ in range(5)]
    assert [status.allowed for status in statuses] == [True, True, True, False, False]
    assert [status.remaining for status in statuses] == [2, 1, 0, 0, 0]
    assert {status.limit for status in statuses} == {3}
    assert len({status.reset for status in statuses}) == 1
    assert before + 59 < statuses[0].reset < time.time() + 61
    assert all(50 < status.retry_after <= 60 for status in statuses)


async def test_requests_after_the_reset_are_allowed(limiter: RateLimiter) -> None:
    for _ in range(20):
        status = await limiter.hit("a", 3, 1)
    assert not status.allowed
    await until(status.reset)
    assert (await limiter.hit("a", 3, 1)).remaining == 2


async def test_the_first_request_starts_the_window(limiter: RateLimiter) -> None:
    await asyncio.sleep(1.2)
    first = await limiter.hit("a", 2, 2)
    await asyncio.sleep(1.2)
    second = await limiter.hit("a", 2, 2)
    assert (second.remaining, second.reset) == (0, first.reset)
    await until(first.reset)
    assert (await limiter.hit("a", 2, 2)).remaining == 1


async def test_keys_and_window_lengths_are_separate(limiter: RateLimiter) -> None:
    await limiter.hit("a", 1, 60)
    assert (await limiter.hit("b", 1, 60)).allowed
    assert (await limiter.hit("a", 1, 3600)).allowed
    assert not (await limiter.hit("a", 1, 60)).allowed


async def test_peek_does_not_count(limiter: RateLimiter) -> None:
    untouched = await limiter.peek("a", 2, 60)
    assert (untouched.allowed, untouched.remaining, untouched.retry_after) == (True, 2, 60)
    await limiter.hit("a", 2, 60)
    for _ in range(5):
        assert (await limiter.peek("a", 2, 60)).remaining == 1
    await limiter.hit("a", 2, 60)
    spent = await limiter.peek("a", 2, 60)
    assert (spent.allowed, spent.remaining) == (False, 0)


@pytest.mark.parametrize(("limit", "window"), [(30, 60), (5, 3600), (50, DAY)])
async def test_other_limits_and_windows(limiter: RateLimiter, limit: int, window: int) -> None:
    statuses = [await limiter.hit("person@example.test", limit, window) for _ in range(limit + 1)]
    assert [status.allowed for status in statuses] == [True] * limit + [False]
    assert window - 10 < statuses[-1].retry_after <= window
    assert abs(statuses[-1].reset - time.time() - window) < 10


async def test_a_changed_limit_applies_immediately(limiter: RateLimiter) -> None:
    for _ in range(3):
        await limiter.hit("a", 5, 60)
    lowered = await limiter.hit("a", 2, 60)
    assert (lowered.allowed, lowered.remaining) == (False, 0)
    assert (await limiter.hit("a", 300, 60)).remaining == 296


async def test_concurrent_requests_are_counted(limiter: RateLimiter) -> None:
    statuses = await asyncio.gather(*(limiter.hit("a", 50, 60) for _ in range(200)))
    remaining = [status.remaining for status in statuses if status.allowed]
    assert sorted(remaining) == list(range(50))
    assert {status.remaining for status in statuses if not status.allowed} == {0}


async def test_times_are_rounded_up() -> None:
    clock = Clock(1_000_000.25)
    limiter = MemoryRateLimiter(clock=clock)
    status = await limiter.hit("a", 1, 60)
    assert (status.reset, status.retry_after) == (1_000_061, 60)
    clock.now += 59.7
    refused = await limiter.hit("a", 1, 60)
    assert (refused.allowed, refused.retry_after) == (False, 1)
    clock.now += refused.retry_after
    assert (await limiter.hit("a", 1, 60)).allowed


async def test_a_key_without_requests_is_unused() -> None:
    clock = Clock()
    assert await MemoryRateLimiter(clock=clock).peek("a", 2, 60) == unused(2, 60, clock.now)


async def test_a_clock_set_back_does_not_extend_a_window() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    await limiter.hit("a", 1, 60)
    clock.now -= 86_400
    assert (await limiter.hit("a", 1, 60)).allowed


async def test_memory_is_bounded() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(capacity=10, clock=clock)
    for number in range(100):
        await limiter.hit(f"key-{number}", 1, 60)
    assert len(limiter) == 10
    assert not (await limiter.hit("key-99", 1, 60)).allowed
    clock.now += 61
    await limiter.hit("another", 1, 60)
    assert len(limiter) == 1


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5))
async def test_no_window_exceeds_its_limit(pauses: list[float], limit: int) -> None:
    clock = Clock(0.0)
    limiter = MemoryRateLimiter(clock=clock)
    allowed: list[float] = []
    for pause in pauses:
        clock.now += pause
        status = await limiter.hit("a", limit, 60)
        assert status.retry_after >= 1
        if status.allowed:
            allowed.append(clock.now)
            assert 0 <= status.remaining < limit
    # Two windows may be adjacent, so any minute has at most twice the limit.
    assert all(sum(start <= other < start + 60 for other in allowed) <= 2 * limit for start in allowed)


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


async def test_a_clock_set_back_extends_no_window_in_redis(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
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
