"""Clients that go away, that are slow, and that speak no proper HTTP."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks import served
from benchmarks.faults.clients import Clients, books, leftovers
from benchmarks.faults.figures import Row, at_most, exactly, p99
from tests.web.samples import FORM, TARGET, form, part
from tests.web.servers import eventually, parsed, read_answer
from tests.web.test_http_abuse import MALFORMED, REFUSED, SERVED

_SMALL, _LARGE = (64, 48), (2000, 1500)
_SLOW = 20  # of each kind of slow client: a server takes 64 connections of one address
_SLOW_SECONDS = 75  # in which each of them is sent away


def gone(folder: Path, share: int) -> list[Row]:
    """F8: clients that close at 1, 50 and 99 % of their upload, while it is converted, and in the download."""
    count, url = 200 // share, served.sqlite(folder)
    (key,) = served.make_accounts(url, 1)
    request = _request(key, served.picture(_LARGE))
    with served.serving(folder) as (server, at):
        asyncio.run(Clients(at, key, served.picture(_SMALL)).order(8))
        before = _descriptors(server.pid)
        for part_sent in (0.01, 0.5, 0.99, 1.0):
            for _ in range(count):
                _leave(at, request[: int(len(request) * part_sent)])
        for _ in range(count):
            _leave(at, _request(key, served.picture(_SMALL)), read=100)
        eventually(lambda: _descriptors(server.pid) <= before)
        more = _descriptors(server.pid) - before
        left = leftovers(folder)
        eventually(lambda: served.held_and_used(url, 1)[0] == 0)
        _, used = served.held_and_used(url, 1)
    return [
        at_most("descriptors more than before", more, 0),
        at_most("credits charged", used, 8 + 2 * count),
        *books(url, used),
        *left,
    ]


def slow(folder: Path, share: int) -> list[Row]:
    """F9: clients that send headers or bodies slowly, or nothing at all, beside others."""
    url = served.sqlite(folder)
    (key,) = served.make_accounts(url, 1)
    count = 100 // share
    with served.serving(folder) as (_, at):
        calm, beside = (Clients(at, key, served.picture((600, 400)), series) for series in ("calm", "beside"))
        asyncio.run(calm.order(count, 2))
        request = _request(key, served.picture(_SMALL))
        beginnings = (b"GET / HTTP/1.1\r\nX: ", request[: len(request) // 2], b"")
        idle = [_connected(at) for _ in range(_SLOW * len(beginnings))]
        for turn, connection in enumerate(idle):
            connection.sendall(beginnings[turn % len(beginnings)])
        began = time.monotonic()
        asyncio.run(beside.order(count, 2))
        closed = sum(_is_closed(connection, began + _SLOW_SECONDS) for connection in idle)
        left = leftovers(folder)
    return [
        exactly(f"slow clients sent away within {_SLOW_SECONDS} s", closed, len(idle)),
        at_most("p99 of others, times that without", p99(beside.seconds()) / p99(calm.seconds()), 2),
        exactly("orders of others served", len(beside.tries), count),
        *books(url, 2 * count),
        *left,
    ]


def malformed(folder: Path, share: int) -> list[Row]:
    """F12: requests that no proper client sends; after each the server answers others."""
    (key,) = served.make_accounts(served.sqlite(folder), 1)
    cases = [*MALFORMED.values(), *(case[0] for case in REFUSED.values()), *SERVED.values()]
    failures = injected = dead = 0
    with served.serving(folder) as (_, at):
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


def _request(key: str, content: bytes) -> bytes:
    body = form(part(content, 'name="file"; filename="a.png"'), TARGET.replace(b"png", b"webp"))
    head = (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)


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
            time.sleep(0.05)  # in which a conversion may begin
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
