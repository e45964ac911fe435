"""Fixtures: a database and all rate limiters."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from benchmarks.processes import RedisServer
from storage.database import Database, migrate
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter
from storage.rate_limits_redis import RedisRateLimiter
from tests.support.samples.storage import Clock, open_account

OpenEarlier = Callable[[int], Database]

LONG_TIMEOUT = 30.0  # seconds; for tests that do not test timeouts


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """An empty Redis."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def redis_limiter(redis_server: RedisServer, redis: Redis) -> AsyncIterator[RedisRateLimiter]:
    limiter = RedisRateLimiter(redis_server.url, timeout=LONG_TIMEOUT)
    yield limiter
    await limiter.close()


@pytest.fixture(params=["memory", "redis", "failover"])
def limiter(request: pytest.FixtureRequest, redis_limiter: RedisRateLimiter) -> RateLimiter:
    """Each implementation."""
    limiters: dict[str, RateLimiter] = {
        "memory": MemoryRateLimiter(),
        "redis": redis_limiter,
        "failover": FailoverRateLimiter(redis_limiter, MemoryRateLimiter()),
    }
    return limiters[request.param]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(url: str, clock: Clock) -> Iterator[Database]:
    opened = Database(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def account(database: Database) -> str:
    """The id of an account with 50 credits."""
    return open_account(database).id


@pytest.fixture
def open_earlier(
    empty_url: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenEarlier]:
    """Opens the database as an earlier release does, with the first migrations only, as many as asked for."""
    opened = []
    folder = tmp_path / "migrations"
    folder.mkdir()

    def open_with(count: int) -> Database:
        for script in sorted(migrate.MIGRATIONS.glob("0*.py"))[:count]:
            shutil.copy(script, folder)
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "MIGRATIONS", folder)
            opened.append(Database(empty_url, clock=clock))
        return opened[-1]

    yield open_with
    for database in opened:
        database.close()
