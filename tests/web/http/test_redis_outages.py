"""Redis is killed or stalls under load: no request is refused, and limits are shared again afterwards."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.processes import RedisServer
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter
from storage.rate_limits_redis import RedisRateLimiter
from tests.support.requests import http
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response

RETRY_INTERVAL = 0.5  # seconds; shorter than the usual one
USUAL_RETRY_INTERVAL = 5.0
LIMIT = 100_000


@dataclass
class Load:
    """A few clients, each with one request at a time."""

    url: str
    statuses: list[int] = field(default_factory=list)

    @contextmanager
    def running(self, clients: int = 3) -> Iterator[None]:
        ended = threading.Event()
        with ThreadPoolExecutor(clients) as pool:
            threads = [pool.submit(self._ask, ended) for _ in range(clients)]
            try:
                yield
            finally:
                ended.set()
        for thread in threads:
            thread.result()

    def _ask(self, ended: threading.Event) -> None:
        with http.Client() as client:
            while not ended.wait(0.02):
                self.statuses.append(client.get(self.url).status_code)


def remaining(server: Running) -> int:
    return int(http.get(f"{server.api}/tools").headers["X-RateLimit-Remaining"])


def together(one: Running, other: Running) -> bool:
    """Whether both servers share their counters."""
    return remaining(one) - remaining(other) == 1


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


def test_servers_share_their_limits(servers: Servers, redis: RedisServer, tmp_path: Path) -> None:
    with (
        servers.running(tmp_path / "one", redis_url=redis.url, rate_limit_anonymous=3) as one,
        servers.running(tmp_path / "other", redis_url=redis.url, rate_limit_anonymous=3) as other,
    ):
        answers = [http.get(f"{server.api}/formats") for server in (one, other, one, other, one)]
    assert [response.status_code for response in answers] == [200, 200, 200, 429, 429]
    assert len({response.headers["X-RateLimit-Reset"] for response in answers}) == 1


def test_a_burst_is_allowed_up_to_the_limit(servers: Servers, redis: RedisServer, data_dir: Path) -> None:
    limiter = RedisRateLimiter(redis.url, timeout=30)
    with servers.running(data_dir, limiter=limiter, rate_limit_anonymous=20) as server:
        request = b"GET /api/v1/formats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connections = [server.connect() for _ in range(100)]
        for connection in connections:
            connection.sendall(request)
        answers = [parsed(read_response(connection)) for connection in connections]
        for connection in connections:
            connection.close()
    assert sorted(response.status_code for response in answers) == [200] * 20 + [429] * 80


@pytest.mark.parametrize(
    ("outage", "end"),
    [
        (RedisServer.kill, RedisServer.start),
        pytest.param(RedisServer.stall, RedisServer.resume, marks=pytest.mark.long),
    ],
    ids=["killed", "stalled"],
)
@pytest.mark.long
def test_an_outage_under_load(
    servers: Servers,
    redis: RedisServer,
    tmp_path: Path,
    outage: Callable[[RedisServer], None],
    end: Callable[[RedisServer], None],
) -> None:
    def limiter() -> RateLimiter:
        return FailoverRateLimiter(RedisRateLimiter(redis.url), MemoryRateLimiter(), retry_interval=RETRY_INTERVAL)

    with (
        servers.running(tmp_path / "one", limiter=limiter(), rate_limit_anonymous=LIMIT) as one,
        servers.running(tmp_path / "other", limiter=limiter(), rate_limit_anonymous=LIMIT) as other,
    ):
        load = Load(f"{one.api}/formats")
        assert eventually(lambda: together(one, other))
        with load.running():
            time.sleep(0.5)
            outage(redis)
            time.sleep(1.5)
        assert not together(one, other)
        end(redis)
        assert eventually(lambda: together(one, other))
    assert set(load.statuses) == {200}


def test_limits_hold_in_an_outage_and_are_shared_after(servers: Servers, redis: RedisServer, data_dir: Path) -> None:
    with servers.running(data_dir, redis_url=redis.url, rate_limit_anonymous=3) as server:
        redis.kill()
        answers = [http.get(f"{server.api}/formats") for _ in range(4)]
        assert [response.status_code for response in answers] == [200, 200, 200, 429]
        assert http.get(f"{server.url}/readyz").status_code == 200
        redis.start()  # without the counts
        assert eventually(lambda: http.get(f"{server.api}/formats").status_code == 200, 4 * USUAL_RETRY_INTERVAL)
