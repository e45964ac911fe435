from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.registry import load_registry
from tests.storage.postgres import find_binaries, running_server
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


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, of each kind."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path / 'convertd.db'}"
        else:
            binaries = find_binaries()
            assert binaries is not None, "PostgreSQL is not installed here"
            yield stack.enter_context(running_server(binaries))
