"""The list of stored files, page by page."""

from typing import Any

import pytest

from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running


def listed(server: Running, key: str, **query: Any) -> Any:
    response = server.request("GET", "/files", key, params=query)
    assert response.status_code == 200, response.text
    return response.json()["data"]


def test_newest_first_page_by_page(either: Running) -> None:
    key = either.account()
    assert listed(either, key) == {"files": [], "next_cursor": None}
    ids = {either.upload(image(), key=key)["file_id"] for _ in range(5)}
    whole = listed(either, key)
    assert (whole["next_cursor"], {file["file_id"] for file in whole["files"]}) == (None, ids)
    assert whole["files"][0] == either.request("GET", f"/files/{whole['files'][0]['file_id']}", key).json()["data"]
    times = [file["created_at"] for file in whole["files"]]
    assert times == sorted(times, reverse=True)
    pages, cursor = [], dict[str, str]()
    while True:
        page = listed(either, key, limit=2, **cursor)
        pages.append(page["files"])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [file for page in pages for file in page] == whole["files"]
    assert listed(either, key, limit=5)["next_cursor"] is None


def test_by_status(either: Running) -> None:
    key = either.account()
    pending, processed = (either.upload(image(), key=key)["file_id"] for _ in range(2))
    either.request("POST", f"/files/{processed}/convert", key, json={"output_format": "png"})
    found = {
        status: [file["file_id"] for file in listed(either, key, status=status)["files"]]
        for status in ("pending", "processed")
    }
    assert found == {"pending": [pending], "processed": [processed]}


def test_files_of_others_are_not_listed(either: Running) -> None:
    key = either.account()
    either.upload(image(), key=key)
    page = listed(either, key, limit=1)
    assert listed(either, either.account()) == {"files": [], "next_cursor": None}
    cursor = f"{'9' * 19}-{page['files'][0]['file_id']}"
    assert listed(either, either.account(), cursor=cursor)["files"] == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "limit=", "status=done", "status=", "cursor=", "cursor=x", "cursor=1-%00"],
)
def test_wrong_queries(server: Running, query: str) -> None:
    problem(server.request("GET", f"/files?{query}"), 400, "invalid_parameter", param=query.partition("=")[0])
