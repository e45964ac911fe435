"""Results: ZIPs of several, copies that are sent to presigned URLs, and their expiry."""

import asyncio
import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from engine.file_names import UniqueNames
from storage.blobs.s3 import S3BlobStore
from storage.database import Transaction
from storage.ids import new_id
from storage.tables import files, models
from tests.support.requests import batches
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Received, Receiver, Send, reply
from tests.support.servers.stores import S3Server
from web.http.connections import ConnectionTimeouts

PATIENT = ConnectionTimeouts(stall=600, rate=0, average=0)
TESTERS = {"unzip": ["unzip", "-tq"], "7z": ["7z", "t"]}
JSON = {"Accept": "application/json"}


def store(server: Running, key: str, *names: str, target: str = "png") -> list[str]:
    """Uploads and converts a file for each name. Returns the ids."""
    ids = [server.upload(image(size=(40 + number, 30)), name, key=key)["file_id"] for number, name in enumerate(names)]
    for file_id in ids:
        assert server.request("POST", f"/files/{file_id}/convert", key, json={"output_format": target}).is_success
    return ids


def download(server: Running, key: str, file_id: str) -> bytes:
    return server.request("GET", f"/files/{file_id}/download", key).content


def zip_of(server: Running, key: str, ids: list[Any]) -> httpx.Response:
    return server.request("POST", "/files/zip", key, json={"file_ids": ids})


def test_a_batch_as_a_zip(either: Running) -> None:
    key = either.account()
    batch = batches.create(either, key)
    ids = batches.add(either, batch, key, image(), image(size=(20, 10)), image("PNG")[:60], image())
    batches.convert(either, batch, key, ids[:3])
    response = either.request("GET", f"/batch/{batch}/download", key)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/zip")
    assert f"{batch}.zip" in response.headers["Content-Disposition"]
    assert response.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    with ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["photo.png", "photo (2).png"]
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o644}
        assert [archive.read(name) for name in archive.namelist()] == [download(either, key, one) for one in ids[:2]]
    head = either.request("HEAD", f"/batch/{batch}/download", key)
    assert (head.status_code, head.content) == (200, b"")


def test_files_as_a_zip_in_the_order_of_the_request(either: Running) -> None:
    key = either.account()
    first, second, third = store(either, key, "größe.jpg", "b.jpg", "B.JPG")
    response = zip_of(either, key, [third, first, second, first])
    assert response.headers["X-Credits-Remaining"] == "47"
    with ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.namelist() == ["B.png", "größe.png", "b (2).png"]
        contents = [archive.read(name) for name in archive.namelist()]
    assert contents == [download(either, key, one) for one in (third, first, second)]


def test_all_readers_open_it(server: Running, tmp_path: Path) -> None:
    key = server.account()
    path = tmp_path / "files.zip"
    path.write_bytes(zip_of(server, key, store(server, key, "größe.jpg", "a.jpg", "a.jpg")).content)
    missing = [name for name in TESTERS if shutil.which(name) is None]
    for name in TESTERS.keys() - missing:
        subprocess.run([*TESTERS[name], path], check=True, stdout=subprocess.DEVNULL)
    assert missing == []


def test_nothing_is_sent_without_all_results(either: Running) -> None:
    key = either.account()
    done = store(either, key, "a.jpg")
    pending = either.upload(image(), key=key)["file_id"]
    for unknown in ("file_0123456789ABCDEFGHIJKL", "x", "file_\0", store(either, either.account(), "a.jpg")[0]):
        problem(zip_of(either, key, [*done, unknown]), 404, "not_found")
    problem(zip_of(either, key, [*done, pending]), 404, "not_found", reason="not_processed")
    batch = batches.create(either, key)
    problem(either.request("GET", f"/batch/{batch}/download", key), 404, "not_found", reason="not_processed")
    batches.add(either, batch, key, image())
    problem(either.request("GET", f"/batch/{batch}/download", key), 404, "not_found", reason="not_processed")


@pytest.mark.parametrize("ids", [[], ["x"] * 1001, "x", [1], None])
def test_wrong_ids(server: Running, ids: Any) -> None:
    problem(zip_of(server, "", ids), 400, "invalid_parameter", param="file_ids")


def test_an_archive_of_a_thousand_results(server: Running) -> None:
    key = server.account()
    (first,) = store(server, key, "a.jpg")

    def repeat(transaction: Transaction) -> list[str]:
        row = asdict(files.get_of_any_account(transaction, first))
        repeated = {name: value for name, value in row.items() if name not in ("file_id", "result_size")}
        ids = [new_id("file") for _ in range(999)]
        for file_id in ids:
            transaction.insert(models.File.insert({**repeated, "file_id": file_id}))
        return ids

    response = zip_of(server, key, [first, *server.database.run_blocking(repeat)])
    with ZipFile(io.BytesIO(response.content)) as archive:
        assert (len(set(archive.namelist())), archive.testzip()) == (1000, None)


def test_a_result_that_is_lost_ends_the_connection(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        ids = store(server, "", "a.jpg", "b.jpg", "c.jpg", target="bmp")
        lost = [download(server, "", one) for one in ids[1:2]]
        for blob in (data_dir / "blobs").iterdir():
            if blob.read_bytes() in lost:
                blob.unlink()
        with pytest.raises(httpx.RemoteProtocolError):
            zip_of(server, "", ids)
        problem(zip_of(server, "", ids[1:]), 404, "not_found")
        assert zip_of(server, "", [ids[0], ids[2]]).status_code == 200


def test_http_1_0(server: Running) -> None:
    """It has no chunks, and the client may ask for the connection to stay open."""
    (file_id,) = store(server, "", "a.jpg")
    body = json.dumps({"file_ids": [file_id]})
    head = f"POST /api/v1/files/zip HTTP/1.0\r\nConnection: keep-alive\r\nAuthorization: Bearer {server.key}\r\n"
    with server.connect() as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        content = connection.makefile("rb").read().partition(b"\r\n\r\n")[2]
    with ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["a.png"]


def test_slow_readers_delay_nobody(servers: Servers, data_dir: Path) -> None:
    """More than there are threads that read blobs."""
    with servers.running(data_dir, timeouts=PATIENT, rate_limit_paid=1000) as server, ExitStack() as stack:
        ids = [server.convert(image(size=(2000, 1500)), "bmp", headers={"Accept": "application/json"}).json()]
        path = f"/api/v1/files/zip HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {server.key}"
        body = b'{"file_ids": ["%s"]}' % ids[0]["data"]["file_id"].encode()
        readers = [stack.enter_context(server.connect()) for _ in range(40)]
        for reader in readers:
            reader.sendall(f"POST {path}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert reader.recv(100).startswith(b"HTTP/1.1 200 ")
        assert server.convert(image()).status_code == 200
        assert len(zip_of(server, "", [ids[0]["data"]["file_id"]]).content) > 9_000_000
        assert server.work_files() == []


def test_unique_names() -> None:
    names = ["a.png", "A.png", "a (2).png", "a.png", "é.png", "e\N{COMBINING ACUTE ACCENT}.png", "b", "b", "c.tar.gz"]
    assert [*map(UniqueNames().add, names)] == [
        *("a.png", "A (2).png", "a (2) (2).png", "a (3).png"),
        *("é.png", "e\N{COMBINING ACUTE ACCENT} (2).png", "b", "b (2)", "c.tar.gz"),
    ]


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


def test_a_url_of_s3(servers: Servers, s3_server: S3Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = S3BlobStore(s3_server.url("exports"))
    url = asyncio.run(bucket.write_url("photo.png", 300))
    with servers.running(data_dir, url_allow=["127.0.0.1"]) as server:
        content = convert(server, "", url).content

    async def read() -> bytes:
        return b"".join([block async for block in bucket.read("photo.png", 0, len(content))])

    assert asyncio.run(read()) == content


def blobs(data_dir: Path) -> list[Path]:
    return [path for path in (data_dir / "blobs").rglob("*") if path.is_file()]


def _rows(transaction: Transaction) -> int:
    return len(transaction.all(models.File.select())) + len(transaction.all(models.Batch.select()))


def _expire(transaction: Transaction) -> None:
    for table in (models.File, models.Batch):
        transaction.execute(table.update(expires_at=1))


def test_nothing_is_left(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_paid=1000) as server:
        batch = server.request("POST", "/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
        file = server.upload(image(), path=f"/batch/{batch}/files")["file_id"]
        made = server.convert(image(), headers={"Accept": "application/json"}).json()["data"]["file_id"]
        server.request("POST", f"/batch/{batch}/convert", json={"output_format": "png", "file_ids": [file]})
        assert len(blobs(data_dir)) == 3
        assert server.request("GET", f"/files/{made}/download").status_code == 200
        server.database.run_blocking(_expire)
        for path in (f"/files/{made}", f"/files/{made}/download", f"/files/{file}", f"/batch/{batch}"):
            problem(server.request("GET", path), 404, "not_found")
    with servers.running(data_dir) as server:
        assert eventually(lambda: not blobs(data_dir))
        assert eventually(lambda: server.database.run_blocking(_rows) == 0)


def test_orphaned_blobs_are_deleted(servers: Servers, data_dir: Path) -> None:
    folder = data_dir / "blobs"
    folder.mkdir(parents=True)
    for name, age in (("blob_left", 7200), ("put_left", 7200), ("blob_young", 60)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    with servers.running(data_dir) as server:
        kept = server.convert(image(), headers={"Accept": "application/json"}).json()["data"]["file_id"]
        assert eventually(lambda: len(blobs(data_dir)) == 2)
        assert (folder / "blob_young").exists()
        assert server.request("GET", f"/files/{kept}/download").status_code == 200
