"""Results that are also sent to presigned URLs."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.blobs.s3 import S3BlobStore
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.receiver import Received, Receiver, Send, reply
from tests.support.servers.stores import S3Server

JSON = {"Accept": "application/json"}


@pytest.fixture
def place() -> Iterator[Receiver]:
    """The server that receives results."""
    with Receiver(reply(201), "127.0.0.2") as running:
        yield running


def convert(server: Running, key: str, url: str, headers: Any = None, **form: Any) -> httpx.Response:
    data = {"output_format": "png", "export_url": url, **form}
    return server.request("POST", "/convert", key, files={"file": image()}, data=data, headers=headers or {})


def credits(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["data"]["credits_remaining"])


def test_a_result_is_sent_and_returned(server: Running, place: Receiver) -> None:
    key, url = server.account(), f"{place.url}/bucket/a%20b?signature=x%2Fy"
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "image/x-own"}
    response = convert(server, key, url, export_headers=json.dumps(headers))
    (received,) = place.requests
    assert (received.method, received.path) == ("PUT", "/bucket/a%20b?signature=x%2Fy")
    assert received.body == response.content
    assert {name.lower(): value for name, value in headers.items()}.items() <= received.headers.items()
    assert received.headers["content-length"] == str(len(response.content))
    assert "transfer-encoding" not in received.headers
    assert credits(server, key) == 49


def test_results_of_stored_files_and_tools_are_sent(server: Running, place: Receiver) -> None:
    key = server.account()
    file_id = server.upload(image(), key=key)["file_id"]
    body = {"output_format": "webp", "export_url": place.url, "export_headers": {"X-Own": "1"}}
    made = server.request("POST", f"/files/{file_id}/convert", key, json=body).json()["data"]
    tool = {"angle": "90", "export_url": place.url}
    turned = server.request("POST", "/pdf/rotate", key, files={"file": sample("pdf")}, data=tool)
    assert [request.headers["content-type"] for request in place.requests] == ["image/webp", "application/pdf"]
    assert place.requests[0].body == server.request("GET", made["download_url"].removeprefix("/api/v1"), key).content
    assert place.requests[1].body == turned.content
    assert place.requests[0].headers["x-own"] == "1"
    batch = server.request("POST", "/batch", key, json={"output_format": "png", "export_url": place.url})
    problem(batch, 400, "invalid_parameter", reason="unknown_parameter")


def test_three_tries_fail(server: Running, place: Receiver) -> None:
    key = server.account()
    place.respond = reply(403, b"<Error/>")
    file_id = server.upload(image(), key=key)["file_id"]
    body = {"output_format": "webp", "export_url": place.url}
    response = server.request("POST", f"/files/{file_id}/convert", key, json=body)
    problem(response, 500, "processing_failed", reason="export_failed", retryable=False, details={"status": 403})
    known = server.request("GET", f"/files/{file_id}", key).json()["data"]
    assert (known["status"], known["error"]["reason"]) == ("pending", "export_failed")
    assert (len(place.requests), credits(server, key)) == (3, 50)


def test_another_try_succeeds(server: Running, place: Receiver) -> None:
    def respond(request: Received, send: Send) -> None:
        (reply(200) if len(place.requests) > 1 else reply(500))(request, send)

    place.respond = respond
    key = server.account()
    assert convert(server, key, place.url).status_code == 200
    assert (len(place.requests), credits(server, key)) == (2, 49)


def test_a_repeated_request_sends_nothing(server: Running, place: Receiver) -> None:
    key, headers = server.account(), {"Idempotency-Key": "once", **JSON}
    first, second = (convert(server, key, place.url, headers) for _ in range(2))
    assert first.json()["data"] == second.json()["data"]
    assert len(place.requests) == 1
    problem(convert(server, key, f"{place.url}/other", headers), 422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/", "forbidden_address"),
        ("http://[::ffff:10.0.0.1]/", "forbidden_address"),
        ("file:///tmp/x", "invalid_url"),
        ("https://a:b@example.org/", "invalid_url"),
    ],
)
def test_urls_that_are_refused_at_once(server: Running, url: str, reason: str) -> None:
    key = server.account(credits=0)
    problem(convert(server, key, url), 400, "invalid_parameter", param="export_url", reason=reason)


def test_redirects_are_not_followed(server: Running, place: Receiver) -> None:
    key = server.account()
    with Receiver(reply(200)) as inside:
        place.respond = reply(307, location=inside.url)
        problem(convert(server, key, place.url), 500, "processing_failed", reason="export_failed")
        assert (inside.connections, credits(server, key)) == (0, 50)


def test_a_presigned_url_of_s3(
    servers: Servers, s3_server: S3Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = S3BlobStore(s3_server.url("exports"))
    url = asyncio.run(bucket.write_url("photo.png", 300))
    with servers.running(data_dir, url_allow=["127.0.0.1"]) as server:
        content = convert(server, "", url).content

    async def read() -> bytes:
        return b"".join([block async for block in bucket.read("photo.png", 0, len(content))])

    assert asyncio.run(read()) == content
