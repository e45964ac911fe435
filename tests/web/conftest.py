from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.sync_api import Browser, Page

from engine.registry import load_registry
from tests.support.browser import running_browser
from tests.support.samples.storage import Clock
from tests.support.servers.in_process import LenientRateLimiter, Running, Servers
from tests.support.servers.stores import shared_stores
from tests.support.servers.stripe_server import StripeServer

if TYPE_CHECKING:
    from tests.support.servers.cluster import Cluster


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
    settings["url_allow"] = ["127.0.0.2"]  # other addresses of this machine are forbidden
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


@pytest.fixture(scope="module")  # while it runs, no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    """Chromium."""
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose base URL has the port it listens on, so that its links work."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    limits = {"rate_limit_free": 10_000, "rate_limit_anonymous": 10_000}
    settings: dict[str, Any] = {**limits, "simulated_checkout": True}
    with servers.running(tmp_path_factory.mktemp("site"), port=port, **settings) as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[[str], Page]]:
    """Returns a function that opens the site with this URL in a new page. The test fails if a script of a page does."""
    errors: list[str] = []
    contexts = []

    def open_site(url: str) -> Page:
        context = browser.new_context(base_url=url.replace("127.0.0.1", "localhost"))
        contexts.append(context)
        opened = context.new_page()
        opened.set_default_timeout(20_000)
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda message: errors.append(message.text) if "Security Policy" in message.text else None)
        return opened

    yield open_site
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(open_page: Callable[[str], Page], site: Running) -> Page:
    """A new page of `site`."""
    return open_page(site.url)


@pytest.fixture
def keep(pytestconfig: pytest.Config) -> Callable[[Page, str], None]:
    """Returns a function that saves a screenshot, if they are requested."""
    folder = pytestconfig.getoption("--screenshots")

    def save(page: Page, name: str) -> None:
        if folder:
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return save


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeServer]:
    with StripeServer() as running:
        yield running


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster without workers."""
    from tests.support.servers.cluster import running_cluster  # noqa: PLC0415, imports Dask, which other tests do not need

    async with running_cluster(tmp_path) as running:
        yield running
