from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from storage.database import Database
from tests.storage.postgres import find_binaries, running_server
from tests.storage.samples import Clock

MakeUrl = Callable[[], str]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed here")
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
