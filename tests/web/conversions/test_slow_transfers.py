"""Clients that hold uploads or results by sending or reading slowly, beside others."""

import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from config.pricing import DEFAULT_PLANS, MIB
from storage.database import Transaction
from storage.descriptors import BLOCK
from storage.tables import models
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import FORM, TARGET, conversion_request, form, image, part
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from web.http.connections import ConnectionTimeouts

PATIENT = ConnectionTimeouts(window=0.4, rate=0, average=0)  # clients take as long as they like


@pytest.fixture
def server(servers: Servers, data_dir: Path) -> Iterator[Running]:
    """A server whose space for uploads and results suffices for one large result."""
    with servers.running(data_dir, timeouts=PATIENT, work_space_mib=96, rate_limit_free=10_000) as running:
        yield running


def posting(key: str) -> str:
    return f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"


def send_a_part(server: Running, closing: ExitStack, size: int) -> socket.socket:
    """Sends `size` bytes of a larger file of another account. Returns the connection."""
    head = f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {64 * MIB}\r\n\r\n"
    content = part(bytes(size), 'name="file"; filename="a.bin"')[:-2]
    connection = closing.enter_context(server.connect())
    connection.sendall((posting(server.account(purchased=1)) + head).encode() + content)
    return connection


@cache
def large_result() -> bytes:
    """A form whose result has 36 MB."""
    return form(part(image("PNG", (4000, 3000)), 'name="file"'), TARGET.replace(b"png", b"bmp"))


def upload(server: Running, size: int) -> int:
    """The status of an upload of another account."""
    headers = {"Authorization": f"Bearer {server.account(purchased=1)}"}
    files = {"file": image("BMP") + bytes(size)}
    return http.post(f"{server.api}/files/upload", files=files, headers=headers, timeout=60).status_code


def stored(server: Running, key: str) -> dict[str, Any]:
    found: dict[str, Any] = server.request("GET", "/account", key).json()["data"]["storage"]
    return found


def stored_blobs(server: Running) -> list[Path]:
    return [path for path in (server.data_dir / "blobs").rglob("*") if path.is_file()]


def test_slow_senders_leave_space_for_others(server: Running) -> None:
    with ExitStack() as closing:
        first, second = send_a_part(server, closing, 47 * MIB), send_a_part(server, closing, 23 * MIB)
        assert eventually(lambda: len(server.work_files()) == 2)
        assert upload(server, 10 * MIB) == 200
        send_a_part(server, closing, 5 * MIB)  # less than a quarter is free
        assert eventually(lambda: [upload(server, 20 * MIB), upload(server, 20 * MIB)] == [200, 200])
        problem(parsed(read_response(first)), 429, "rate_limit_exceeded", reason="queue_full")
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)


def test_a_large_result_is_stored_while_it_is_sent(server: Running) -> None:
    key = server.account()
    with server.connect() as connection:
        connection.sendall(conversion_request(posting(key), large_result()))
        begun = connection.recv(10_000)
        assert begun.startswith(b"HTTP/1.1 200 ")
        assert server.work_files() == []
        size = stored(server, key)["stored_bytes"]
        assert size > 36_000_000
        head, _, content = begun.partition(b"\r\n\r\n")
        assert b"Content-Length: %d\r\n" % size in head
        content += connection.makefile("rb").read(size - len(content))
        assert (content[:2], len(content)) == (b"BM", size)
    assert eventually(lambda: stored(server, key)["stored_bytes"] == 0)
    assert eventually(lambda: stored_blobs(server) == [])
    assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 49


def test_a_large_result_of_a_client_that_disconnects_is_deleted(server: Running) -> None:
    key = server.account()
    with server.connect() as connection:
        connection.sendall(conversion_request(posting(key), large_result()))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert stored(server, key)["stored_bytes"] > 0
    assert eventually(lambda: stored(server, key)["stored_bytes"] == 0)
    assert eventually(lambda: stored_blobs(server) == [])


def test_a_large_result_is_deleted_if_the_client_disconnects_meanwhile(server: Running) -> None:
    """The deletion begins before the last block is sent, and has to wait for the database."""
    key = server.account()
    with server.connect() as connection, closing(sqlite3.connect(server.data_dir / "convertd.db")) as locked:
        connection.sendall(conversion_request(posting(key), large_result()))
        response = connection.recv(10_000)
        head, _, body = response.partition(b"\r\n\r\n")
        size = int(re.search(rb"Content-Length: (\d+)", head)[1])  # type: ignore[index]
        locked.execute("BEGIN IMMEDIATE")
        received = len(body)
        while received < (size - 1) // BLOCK * BLOCK:
            received += len(connection.recv(MIB))
        assert http.get(f"{server.url}/healthz").is_success  # the deletion has begun
        connection.close()
        assert http.get(f"{server.url}/healthz").is_success  # the server has read that the client is gone
        locked.rollback()
    assert eventually(lambda: stored(server, key)["stored_bytes"] == 0)


def test_a_large_result_needs_free_storage(server: Running) -> None:
    key, most = server.account(), DEFAULT_PLANS["free"].max_stored_bytes
    file = server.upload(image(), key=key)["file_id"]
    full = models.File.update({"original_size": most}).where(models.File.file_id == file)
    server.database.run_blocking(Transaction.execute, full)
    response = parsed(server.raw(conversion_request(posting(key), large_result())))
    problem(response, 413, "file_too_large", reason="storage")
    assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 50
    assert server.convert(image(), headers={"Authorization": f"Bearer {key}"}).status_code == 200
