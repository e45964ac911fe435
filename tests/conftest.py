"""Options and fixtures of all tests."""

import gc
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import hypothesis
import psycopg
import pytest

from benchmarks.postgres import find_binaries, running_server
from benchmarks.processes import RedisServer
from storage.database import Database
from tests.support.samples.corpus import CORPUS, load_corpus
from tests.support.samples.databases import new_sqlite_url
from tests.support.samples.pairs import SHARES
from tests.support.servers.stores import S3Server

MakeUrl = Callable[[], str]
CopyDatabase = Callable[[], AbstractContextManager[str]]

hypothesis.settings.register_profile("quick", deadline=None, max_examples=40)
hypothesis.settings.register_profile("long", deadline=None, max_examples=400)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", help="a folder for images of the pages")
    parser.addoption(
        "--rounds", type=int, default=1, help="repetitions of races over HTTP and of kills of a server or its clients"
    )
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=3,
        help="seconds for damaged files and forms; sets how many requests schemathesis makes",
    )
    parser.addoption("--share", type=int, choices=range(SHARES), default=0, help="which share of what takes long runs")
    parser.addoption(
        "--long",
        action="store_true",
        help="also run the tests marked with `long`, which take minutes, and all conversions of the corpus",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Handles SIGINT, which shells ignore for commands in the background. Child processes would inherit that.

    Servers load the libraries of a family with its first file: most of them end before they convert any.
    """
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "quick")
    os.environ.setdefault("CONVERTD_TEMPLATES_AHEAD", "false")
    # Of hundreds of HTTP clients, each would read all authorities, in 60 ms, to ask none of them.
    os.environ.setdefault("SSL_CERT_FILE", str(Path(__file__).parent / "support" / "authority.pem"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports the tests without the garbage collector, which would take a third of the CPU time to find nothing.

    Afterwards it runs less often than by default, which would take a twentieth of the CPU time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs slow tests first, so that workers end at about the same time; long tests only with `--long`."""
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_report_header(config: pytest.Config) -> list[str]:
    share = "all" if config.getoption("long") else f"{config.getoption('share')} of 0 to {SHARES - 1}"
    files = f"{len(load_corpus())} files" if CORPUS.is_dir() else "not here, its tests have nothing to do"
    return [f"share: {share}", f"corpus: {files}"]


@pytest.fixture
def fuzz_seconds(request: pytest.FixtureRequest) -> float:
    """Seconds for all tests with damaged files and forms together. Sets the number of requests of schemathesis."""
    return float(request.config.getoption("--fuzz-seconds"))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server for the whole test run."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3-compatible store for the whole test run."""
    with S3Server() as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with running_server(binaries) as url:
        yield url


@pytest.fixture(scope="session")
def new_postgres_url(postgres: str) -> MakeUrl:
    """Creates empty databases and yields their URLs. They are schemas, which are created faster."""
    numbers = count()

    def make() -> str:
        name = f"test_{next(numbers)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{postgres}?options=-csearch_path%3D{name}"

    return make


@pytest.fixture(scope="session")
def copied_postgres(postgres: str) -> CopyDatabase:
    """Copies a database without rows, with the schema of this release: a context with the URL of the copy.

    A copy takes a quarter of the time of all migrations.
    """
    server, numbers = postgres.rpartition("/")[0], count()

    def execute(statement: str) -> None:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(statement.encode())

    execute("CREATE DATABASE migrated")
    Database(f"{server}/migrated").close()

    @contextmanager
    def copy() -> Iterator[str]:
        name = f"copy_{next(numbers)}"
        execute(f"CREATE DATABASE {name} TEMPLATE migrated")
        yield f"{server}/{name}"
        execute(f"DROP DATABASE {name} WITH (FORCE)")

    return copy


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def outages(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """Counts the warnings of an outage, which the log limits. There are no others."""

    def counted() -> int:
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert all(getattr(record, "outage", False) for record in warnings), warnings
        return len(warnings)

    return counted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that use a database run on SQLite, and on PostgreSQL too if they are marked with `both_databases`."""
    own = any("url" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if not own and metafunc.definition.get_closest_marker("both_databases"):
        for fixture in {"url", "empty_url"} & {*metafunc.fixturenames}:
            metafunc.parametrize(fixture, ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without rows, with the schema of this release."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield new_sqlite_url(tmp_path)
        return
    copy: CopyDatabase = request.getfixturevalue("copied_postgres")
    with copy() as made:
        yield made


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path / 'convertd.db'}"
    make: MakeUrl = request.getfixturevalue("new_postgres_url")
    return make()
