"""ZIPs of several results, made while they are sent."""

import io
import json
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from engine.file_names import UniqueNames
from storage.database import Transaction
from storage.ids import new_id
from storage.tables import files, models
from tests.support.requests import batches
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers
from web.http.connections import ConnectionTimeouts

PATIENT = ConnectionTimeouts(stall=600, rate=0, average=0)
TESTERS = {"unzip": ["unzip", "-tq"], "7z": ["7z", "t"]}


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
