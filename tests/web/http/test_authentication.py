"""Requests without a valid key reach only public endpoints."""

from collections.abc import Iterator

import pytest

from tests.support.requests.checks import problem
from tests.support.servers.in_process import Running, Servers

DOORS = (
    ("POST", "/convert"),
    ("POST", "/files/upload"),
    ("GET", "/files/file_1"),
    ("DELETE", "/files/file_1"),
    ("POST", "/files/file_1/convert"),
    ("GET", "/files/file_1/download"),
    ("POST", "/batch"),
    ("GET", "/batch/batch_1"),
    ("POST", "/batch/batch_1/files"),
    ("POST", "/batch/batch_1/convert"),
    ("POST", "/pdf/merge"),
    ("POST", "/pdf/delete-pages"),
    ("GET", "/account"),
    ("GET", "/account/usage"),
    ("GET", "/account/keys"),
    ("POST", "/credits/purchase"),
)


@pytest.fixture(scope="module")
def closed(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: wrong keys are counted by address."""
    with servers.running(tmp_path_factory.mktemp("closed")) as running:
        yield running


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_a_key_is_needed(closed: Running, method: str, path: str) -> None:
    problem(closed.request(method, path, "none"), 401, "invalid_api_key")


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_a_key_has_to_be_verified(closed: Running, method: str, path: str) -> None:
    problem(closed.request(method, path, closed.account(verified=False)), 403, "key_not_verified")
