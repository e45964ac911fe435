from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.registry import load_registry
from tests.support.servers import LenientRateLimiter, Running, Servers
from tests.support.stores import shared_stores


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Starts servers with custom settings."""
    shared = Servers(load_registry())
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests without special settings."""
    folder = tmp_path_factory.mktemp("data")
    settings: dict[str, Any] = {"rate_limit_paid": 10_000, "simulated_checkout": True}
    with servers.running(folder, limiter=LenientRateLimiter(), **settings) as running:
        yield running


@pytest.fixture(scope="session", params=["alone", "shared"])
def either(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server with local stores, and one with PostgreSQL, an S3 store and Redis."""
    settings: dict[str, Any] = {"rate_limit_paid": 100_000, "rate_limit_free": 100_000}
    with ExitStack() as stack:
        if request.param == "shared":
            database_url, store = request.getfixturevalue("new_postgres_url")(), request.getfixturevalue("s3_server")
            stores = shared_stores(tmp_path_factory.mktemp("stores"), database_url, store)
            settings |= stack.enter_context(stores)
        yield stack.enter_context(servers.running(tmp_path_factory.mktemp("either"), **settings))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"
