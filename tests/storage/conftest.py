"""Databases of both kinds, and every way to count requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from redis.asyncio import Redis

from storage.database import Database
from storage.failover import FailoverLimiter
from storage.limits import Limiter, MemoryLimiter
from storage.redis_limits import RedisLimiter
from tests.redis_server import RedisServer
from tests.storage.postgres import find_binaries, running_server
from tests.storage.samples import Clock

MakeUrl = Callable[[], str]
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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with running_server(binaries) as url:
        yield url


@pytest.fixture(scope="session")
def new_postgres_url(postgres: str) -> MakeUrl:
    """Makes URLs of empty databases: schemas, which are quicker to make."""
    numbers = count()

    def make() -> str:
        name = f"test_{next(numbers)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{postgres}?options=-csearch_path%3D{name}"

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'convertd.db'}"
    make: MakeUrl = request.getfixturevalue("new_postgres_url")
    return make()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(url: str, clock: Clock) -> Iterator[Database]:
    opened = Database(url, clock=clock)
    yield opened
    opened.close()
