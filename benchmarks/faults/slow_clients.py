"""Clients that go away, that are slow, and that speak no proper HTTP."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, books, leftovers
from benchmarks.faults.kills import running_jobs
from benchmarks.report import Row, at_most, exactly, p95
from tests.support.http_requests import MALFORMED, REFUSED, SERVED
from tests.support.servers import eventually, parsed, read_answer
from tests.support.web_samples import FORM, TARGET, form, part

_SMALL, _LARGE, _HUGE = (64, 48), (2000, 1500), (4000, 3000)
_SLOW = {"heads": 400, "bodies": 100, "idle": 100}
_ADDRESSES = 16  # a server takes 64 connections of each, and 512 in all
_SLOW_SECONDS = 75  # in which each of them is sent away


def gone(folder: Path, share: int) -> list[Row]:
    """F8: clients that close at 1, 50 and 99 % of their upload, while it is converted, and in the download."""
    count, url = 200 // share, server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    request, long = _request(key, server_process.picture(_LARGE)), _request(key, server_process.picture(_HUGE), b"heic")
    with server_process.serving(folder) as (server, at):
        asyncio.run(Clients(at, key, server_process.picture(_SMALL)).order(8))
        before = _descriptors(server.pid)
        for part_sent in (0.01, 0.5, 0.99):
            for _ in range(count):
                _leave(at, request[: int(len(request) * part_sent)])
        orphaned = [_orphaned(server.pid, folder, at, long) for _ in range(count)]
        for _ in range(count):
            _leave(at, _request(key, server_process.picture(_SMALL)), read=100)
        eventually(lambda: _descriptors(server.pid) <= before)
        more = _descriptors(server.pid) - before
        left = leftovers(folder)
        eventually(lambda: server_process.held_and_used(url, 1)[0] == 0)
        _, used = server_process.held_and_used(url, 1)
    return [
        at_most("seconds until a job is gone whose client is", max(orphaned), 2),
        at_most("descriptors more than before", more, 0),
        at_most("credits charged", used, 8 + count),
        *books(url, used),
        *left,
    ]


def slow(folder: Path, share: int) -> list[Row]:
    """F9: clients that send headers or bodies slowly, or nothing at all, beside others that were there before."""
    url = server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    count = 200 // share
    with server_process.serving(folder) as (_, at):
        calm, beside = (Clients(at, key, server_process.picture((600, 400)), series) for series in ("calm", "beside"))
        asyncio.run(calm.order(count, 2))

        async def disturbed() -> list[socket.socket]:
            work = asyncio.create_task(beside.order(count, 2))
            await asyncio.to_thread(eventually, lambda: len(beside.answers) >= 2)
            opened = await asyncio.to_thread(_dawdling, at, key)
            await work
            return opened

        began = time.monotonic()
        idle = asyncio.run(disturbed())
        closed = sum(_is_closed(connection, began + _SLOW_SECONDS) for connection in idle)
        left = leftovers(folder)
    return [
        exactly(f"slow clients sent away within {_SLOW_SECONDS} s", closed, sum(_SLOW.values())),
        at_most("p95 of others, times that without", p95(beside.seconds()) / p95(calm.seconds()), 2),
        exactly("orders of others served", len(beside.tries), count),
        *books(url, 2 * count),
        *left,
    ]


def _dawdling(url: str, key: str) -> list[socket.socket]:
    """Connections of all slow kinds, from many addresses."""
    request = _request(key, server_process.picture(_SMALL))
    beginnings = {"heads": b"GET / HTTP/1.1\r\nX: ", "bodies": request[: len(request) // 2], "idle": b""}
    kinds = [kind for kind, count in _SLOW.items() for _ in range(count)]
    random.Random(9).shuffle(kinds)
    opened = []
    for number, kind in enumerate(kinds):
        connection = _connected(url, f"127.0.4.{number % _ADDRESSES + 1}")
        with suppress(ConnectionError):  # more than the server takes
            connection.sendall(beginnings[kind])
        opened.append(connection)
    return opened


def _orphaned(pid: int, folder: Path, url: str, request: bytes) -> float:
    """Seconds until the job is gone, after a client has left that waited for it."""
    with _connected(url) as connection:
        connection.sendall(request)
        eventually(lambda: bool(running_jobs(pid, folder)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    began = time.monotonic()
    eventually(lambda: not running_jobs(pid, folder))
    return time.monotonic() - began


def malformed(folder: Path, share: int) -> list[Row]:
    """F12: requests that no proper client sends; after each the server answers others."""
    (key,) = server_process.make_accounts(server_process.sqlite(folder), 1)
    cases = [*MALFORMED.values(), *(case[0] for case in REFUSED.values()), *SERVED.values()]
    failures = injected = dead = 0
    with server_process.serving(folder) as (_, at):
        for case in cases:
            answer = _answered(at, case.replace(b"Authorization: KEY", b"Authorization: Bearer " + key.encode()))
            failures += answer.status_code >= 500
            injected += "injected" in str(answer.headers).lower()
            dead += httpx.get(at.replace("/api/v1/convert", "/healthz")).status_code != 200
        left = leftovers(folder)
    return [
        ("requests", float(len(cases)), "", ""),
        exactly("5xx", failures, 0),
        exactly("injected headers", injected, 0),
        exactly("others not answered afterwards", dead, 0),
        *left,
    ]


def _request(key: str, content: bytes, target: bytes = b"webp") -> bytes:
    body = form(part(content, 'name="file"; filename="a.png"'), TARGET.replace(b"png", target))
    head = (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _connected(url: str, address: str = "127.0.0.1") -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30, source_address=(address, 0))


def _answered(url: str, request: bytes) -> httpx.Response:
    with _connected(url) as connection:
        connection.sendall(request)
        return parsed(read_answer(connection))


def _leave(url: str, request: bytes, read: int = 0) -> None:
    """Sends this, reads so many bytes, and resets the connection."""
    with _connected(url) as connection, suppress(ConnectionError):
        connection.sendall(request)
        if read:
            connection.recv(read)
        else:
            time.sleep(0.05)  # in which the server takes it
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _is_closed(connection: socket.socket, deadline: float) -> bool:
    with connection:
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            while connection.recv(65_536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
