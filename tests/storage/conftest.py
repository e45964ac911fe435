"""A database, and every way to count requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from storage.database import Database
from storage.failover import FailoverLimiter
from storage.limits import Limiter, MemoryLimiter
from storage.redis_limits import RedisLimiter
from tests.redis_server import RedisServer
from tests.storage.samples import Clock

PATIENT = 30.0  # seconds; for tests that are not about speed


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """An empty Redis."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def redis_limiter(redis_server: RedisServer, redis: Redis) -> AsyncIterator[RedisLimiter]:
    limiter = RedisLimiter(redis_server.url, patience=PATIENT)
    yield limiter
    await limiter.close()


@pytest.fixture(params=["memory", "redis", "failover"])
def limiter(request: pytest.FixtureRequest, redis_limiter: RedisLimiter) -> Limiter:
    """Every way to count."""
    ways: dict[str, Limiter] = {
        "memory": MemoryLimiter(),
        "redis": redis_limiter,
        "failover": FailoverLimiter(redis_limiter, MemoryLimiter()),
    }
    return ways[request.param]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(url: str, clock: Clock) -> Iterator[Database]:
    opened = Database(url, clock=clock)
    yield opened
    opened.close()
