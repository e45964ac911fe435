"""Range and conditional requests for downloads."""

import pytest

from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running


@pytest.fixture(scope="module")
def stored(either: Running) -> tuple[Running, str, bytes]:
    """A server, the path of a download, and its content."""
    made = either.convert(image(), headers={"Accept": "application/json"}).json()["data"]
    path = f"/files/{made['file_id']}/download"
    return either, path, either.request("GET", path).content


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-7", -7, None), ("bytes=5-999999", 5, None)],
)
def test_a_part(stored: tuple[Running, str, bytes], wanted: str, start: int, end: int | None) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    expected = whole[start:end]
    first = whole.index(expected) if start < 0 else start
    assert (response.status_code, response.content) == (206, expected)
    assert response.headers["Content-Range"] == f"bytes {first}-{first + len(expected) - 1}/{len(whole)}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "lines=1-2", "bytes=-", "bytes=9-3", "bytes=a-b"])
def test_malformed_ranges_return_the_whole_file(stored: tuple[Running, str, bytes], wanted: str) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    assert (response.status_code, response.content) == (200, whole)
    assert response.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize("wanted", ["bytes=999999-", "bytes=-0"])
def test_beyond_the_end(stored: tuple[Running, str, bytes], wanted: str) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    problem(response, 416, "range_not_satisfiable", details={"size": len(whole)})
    assert response.headers["Content-Range"] == f"bytes */{len(whole)}"


def test_conditional_headers(stored: tuple[Running, str, bytes]) -> None:
    server, path, whole = stored
    tag = server.request("GET", path).headers["ETag"]
    part = {"Range": "bytes=0-0"}
    assert server.request("GET", path, headers={**part, "If-Range": tag}).content == whole[:1]
    assert server.request("GET", path, headers={**part, "If-Range": '"another"'}).content == whole
    unchanged = server.request("GET", path, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


def test_head_request(stored: tuple[Running, str, bytes]) -> None:
    server, path, whole = stored
    response = server.request("HEAD", path)
    assert (response.status_code, response.headers["Content-Length"], response.content) == (200, str(len(whole)), b"")
