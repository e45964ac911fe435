from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.registry import load_registry
from tests.web.servers import Running, Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Starts servers with settings of one's own."""
    shared = Servers(load_registry())
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests that need nothing special."""
    with servers.running(tmp_path_factory.mktemp("data"), rate_limit_paid=10_000) as running:
        yield running


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"
