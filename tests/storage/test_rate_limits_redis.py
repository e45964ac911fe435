"""Limits in Redis: shared, in one round trip, and replaced while Redis is away."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimitStatus
from storage.rate_limits_redis import RedisRateLimiter
from tests.storage.conftest import PATIENT
from tests.support.redis_server import RedisServer
from tests.support.server_process import free_port

PAUSE = 0.5  # seconds
KEY = "convertd:limit:60:a"


async def test_processes_share_their_limits(redis_server: RedisServer, redis_limiter: RedisRateLimiter) -> None:
    other = RedisRateLimiter(redis_server.url, patience=PATIENT)
    hits = [limiter.hit("a", 50, 60) for _ in range(100) for limiter in (redis_limiter, other)]
    verdicts = await asyncio.gather(*hits)
    await other.close()
    assert sorted(verdict.remaining for verdict in verdicts if verdict.allowed) == list(range(50))


async def test_keys_are_named_and_go_by_themselves(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 1, 60)
    await redis_limiter.peek("b", 1, 60)
    assert await redis.keys("*") == [KEY.encode()]
    assert 50_000 < await redis.pttl(KEY) <= 60_000


async def test_one_command_a_request(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 100, 60)
    await redis.config_resetstat()
    for _ in range(10):
        await redis_limiter.hit("a", 100, 60)
    stats = await redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 10
    assert "cmdstat_script|load" not in stats


async def test_a_redis_that_has_forgotten_the_script(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 2, 60)
    await redis.script_flush()
    assert (await redis_limiter.hit("a", 2, 60)).remaining == 0


async def test_a_clock_that_is_set_back_locks_nobody_out(redis: Redis, redis_limiter: RedisRateLimiter) -> None:
    await redis_limiter.hit("a", 1, 60)
    await redis.hincrby(KEY, "end", 86_400_000)
    assert (await redis_limiter.hit("a", 1, 60)).retry_after == 60


async def test_a_late_event_loop_is_not_held_against_redis(redis_server: RedisServer, redis: Redis) -> None:
    limiter = RedisRateLimiter(redis_server.url)
    asyncio.get_running_loop().call_later(0.001, time.sleep, 0.3)
    verdicts = await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(300)))
    await limiter.close()
    assert [verdict.remaining for verdict in verdicts] == list(range(999, 699, -1))


async def test_answers_that_come_too_late_are_nobodys(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        limiter = RedisRateLimiter(server.url)
        await limiter.hit("a", 10, 60)
        server.stall()
        failures = await asyncio.gather(*(limiter.hit("a", 10, 60) for _ in range(3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [TimeoutError] * 3
        server.resume()
        verdicts = await asyncio.gather(limiter.hit("b", 20, 60), limiter.peek("c", 30, 60), limiter.hit("b", 20, 60))
        await limiter.close()
    assert [(verdict.limit, verdict.remaining) for verdict in verdicts] == [(20, 19), (30, 30), (20, 18)]


async def test_one_who_goes_away_takes_nobody_along(redis_limiter: RedisRateLimiter) -> None:
    hits = [asyncio.ensure_future(redis_limiter.hit("a", 10, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    hits[0].cancel()
    await asyncio.wait(hits)
    assert [hit.cancelled() for hit in hits] == [True, False, False]
    assert (await redis_limiter.hit("a", 10, 60)).remaining == 6


async def test_without_redis_the_process_counts(caplog: pytest.LogCaptureFixture) -> None:
    limiter = FailoverRateLimiter(RedisRateLimiter(f"redis://:secret@127.0.0.1:{free_port()}"), MemoryRateLimiter())
    verdicts = [await limiter.hit("a", 3, 60) for _ in range(5)]
    await limiter.close()
    assert [verdict.remaining for verdict in verdicts] == [2, 1, 0, 0, 0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "secret" not in caplog.text


async def timed(limiter: FailoverRateLimiter) -> tuple[float, RateLimitStatus]:
    start = time.perf_counter()
    verdict = await limiter.hit("a", 1000, 60)
    return time.perf_counter() - start, verdict


@pytest.mark.timing
async def test_a_stall_delays_one_request_in_every_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path) as server:
        limiter = FailoverRateLimiter(RedisRateLimiter(server.url), MemoryRateLimiter(), pause=PAUSE)
        assert (await timed(limiter))[1].remaining == 999
        server.stall()
        assert 0.09 < (await timed(limiter))[0] < 0.15
        assert sum([(await timed(limiter))[0] for _ in range(50)]) < 0.1
        await asyncio.sleep(PAUSE)
        delays = [delay for delay, _ in await asyncio.gather(*(timed(limiter) for _ in range(50)))]
        assert sum(delay > 0.05 for delay in delays) == 1
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "limits hold for each process by itself, until Redis answers"
        ]
        await limiter.close()


async def test_redis_counts_again_when_it_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path) as server:
        limiter = FailoverRateLimiter(RedisRateLimiter(server.url), MemoryRateLimiter(), pause=PAUSE)
        await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(5)))
        server.kill()
        assert (await limiter.hit("a", 1000, 60)).remaining == 999
        server.start()
        await asyncio.sleep(PAUSE)
        verdicts = await asyncio.gather(*(limiter.hit("a", 1000, 60) for _ in range(5)))
        # One request asks Redis, which has lost its counts; the others do not wait for it.
        assert sorted(verdict.remaining for verdict in verdicts) == [995, 996, 997, 998, 999]
        assert (await limiter.hit("a", 1000, 60)).remaining == 998
        await limiter.close()
    assert "again" in caplog.records[-1].message
    assert len(caplog.records) == 2
