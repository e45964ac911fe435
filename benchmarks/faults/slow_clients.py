"""Clients that disconnect, that are slow, and that send malformed HTTP."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from urllib.parse import urlsplit

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, check_ledger, check_work_files
from benchmarks.faults.kills import running_jobs
from benchmarks.report import Row, at_most, equals, info, p95
from tests.support.requests.http_requests import MALFORMED, REFUSED, SERVED
from tests.support.samples.forms import FORM, TARGET, form, part
from tests.support.servers.in_process import eventually, open_work_files, parsed, read_response

_TINY, _SMALL, _MEDIUM, _LARGE = (64, 48), (600, 400), (2000, 1500), (4000, 3000)
_SLOW_CONNECTIONS = {"headers": 400, "bodies": 100, "idle": 100}
_ADDRESSES = 16  # a server accepts 64 connections per address, and 512 in all
_SLOW_UPLOADS = 16
_SLOW_BYTES = 10_000  # per half second
_SLOW_LENGTH = 90 << 20  # bytes, announced
_CLOSE_TIMEOUT = 75  # seconds in which the server closes slow connections


def disconnects(folder: Path, divisor: int) -> list[Row]:
    """F8: clients disconnect at 1, 50 and 99 % of the upload, during the conversion, and during the download."""
    count, database_url = 200 // divisor, server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    request = _request(key, server_process.picture(_MEDIUM))
    long_request = _request(key, server_process.picture(_LARGE), b"heic")
    with server_process.serving(folder) as (server, url):
        asyncio.run(Clients(url, key, server_process.picture(_TINY)).convert(8))
        descriptors = _open_descriptors(server.pid)
        for share in (0.01, 0.5, 0.99):
            for _ in range(count):
                _send_and_reset(url, request[: int(len(request) * share)])
        job_seconds = [_disconnect_during_job(server.pid, folder, url, long_request) for _ in range(count)]
        for _ in range(count):
            _send_and_reset(url, _request(key, server_process.picture(_TINY)), receive=100)
        eventually(lambda: _open_descriptors(server.pid) <= descriptors)
        added_descriptors = _open_descriptors(server.pid) - descriptors
        file_rows = check_work_files(server.pid, folder)
        eventually(lambda: server_process.held_and_used(database_url, 1)[0] == 0)
        _, used = server_process.held_and_used(database_url, 1)
    return [
        at_most("seconds from a disconnect to the end of its job", max(job_seconds), 2),
        at_most("additional open descriptors", added_descriptors, 0),
        at_most("credits charged", used, 8 + count),
        *check_ledger(database_url, used),
        *file_rows,
    ]


def slow_requests(folder: Path, divisor: int) -> list[Row]:
    """F9: clients send headers or bodies slowly, or nothing, beside normal clients that connected earlier."""
    database_url = server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    count = 200 // divisor
    with server_process.serving(folder) as (server, url):
        content = server_process.picture(_SMALL)
        baseline, others = (Clients(url, key, content, key_prefix) for key_prefix in ("baseline", "others"))
        asyncio.run(baseline.convert(count, 2))

        async def convert_beside_slow_clients() -> list[socket.socket]:
            work = asyncio.create_task(others.convert(count, 2))
            await asyncio.to_thread(eventually, lambda: len(others.responses) >= 2)
            connections = await asyncio.to_thread(_open_slow_connections, url, key)
            await work
            return connections

        started = monotonic()
        connections = asyncio.run(convert_beside_slow_clients())
        closed = sum(_is_closed(connection, started + _CLOSE_TIMEOUT) for connection in connections)
        file_rows = check_work_files(server.pid, folder)
    slowdown = p95(others.seconds()) / p95(baseline.seconds())
    return [
        equals(f"slow connections closed within {_CLOSE_TIMEOUT} s", closed, sum(_SLOW_CONNECTIONS.values())),
        at_most("p95 latency of others, multiple of that without", slowdown, 2),
        equals("conversions of others", others.succeeded, count),
        *check_ledger(database_url, 2 * count),
        *file_rows,
    ]


def slow_uploads(folder: Path, divisor: int) -> list[Row]:
    """F18: one account sends 16 slow uploads, of announced and of unknown length, beside another account."""
    database_url = server_process.sqlite_url(folder)
    slow, key = server_process.create_accounts(database_url, 2)
    count = 500 // divisor
    with server_process.serving(folder) as (server, url):
        others = Clients(url, key, server_process.picture(_SMALL))
        ended = Event()
        with ThreadPoolExecutor(_SLOW_UPLOADS) as pool:
            uploads = [pool.submit(_upload_slowly, url, slow, ended, chunked=n % 2 == 1) for n in range(_SLOW_UPLOADS)]
            eventually(lambda: len(open_work_files(folder, server.pid)) == _SLOW_UPLOADS)
            asyncio.run(others.convert(count, 2))
            ended.set()
            complete = sum(upload.result() for upload in uploads)
        file_rows = check_work_files(server.pid, folder)
    return [
        equals("conversions of others", others.succeeded, count),
        equals("attempts of others", len(others.responses), count),
        at_most("p95 latency of others, s", p95(others.seconds()), 5),
        equals("slow uploads not refused", complete, _SLOW_UPLOADS),
        *file_rows,
    ]


def _upload_slowly(url: str, key: str, ended: Event, *, chunked: bool) -> bool:
    """Sends a body at 20 kB/s until `ended`, then disconnects. Returns whether the server sent no response."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {_SLOW_LENGTH}"
    head = (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\n{length}\r\n\r\n"
    )
    piece = form(part(bytes(_SLOW_BYTES), 'name="file"; filename="a.png"'), end=False)[:_SLOW_BYTES]
    with _connect(url) as connection:
        connection.sendall(head.encode())
        while True:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            if ended.wait(0.5):
                return not select.select([connection], [], [], 0)[0]
            piece = bytes(_SLOW_BYTES)


def malformed_requests(folder: Path, divisor: int) -> list[Row]:
    """F12: malformed and unusual requests; after each, the server responds to another client."""
    (key,) = server_process.create_accounts(server_process.sqlite_url(folder), 1)
    requests = [*MALFORMED.values(), *(request for request, _, _ in REFUSED.values()), *SERVED.values()]
    failures = injected = unanswered = 0
    with server_process.serving(folder) as (server, url):
        for request in requests:
            authorized = request.replace(b"Authorization: KEY", b"Authorization: Bearer " + key.encode())
            response = _send(url, authorized)
            failures += response.status_code >= 500
            injected += "injected" in str(response.headers).lower()
            unanswered += httpx.get(url.replace("/api/v1/convert", "/healthz")).status_code != 200
        file_rows = check_work_files(server.pid, folder)
    return [
        info("requests", len(requests)),
        equals("responses 5xx", failures, 0),
        equals("injected headers", injected, 0),
        equals("failed requests of another client", unanswered, 0),
        *file_rows,
    ]


def _request(key: str, content: bytes, target: bytes = b"webp") -> bytes:
    body = form(part(content, 'name="file"; filename="a.png"'), TARGET.replace(b"png", target))
    head = (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _connect(url: str, address: str = "127.0.0.1") -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30, source_address=(address, 0))


def _send(url: str, request: bytes) -> httpx.Response:
    with _connect(url) as connection:
        connection.sendall(request)
        return parsed(read_response(connection))


def _send_and_reset(url: str, request: bytes, receive: int = 0) -> None:
    """Sends the bytes, receives up to `receive` bytes, and resets the connection."""
    with _connect(url) as connection, suppress(ConnectionError):
        connection.sendall(request)
        if receive:
            connection.recv(receive)
        else:
            sleep(0.05)  # until the server has read the bytes
        _reset_on_close(connection)


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _disconnect_during_job(pid: int, folder: Path, url: str, request: bytes) -> float:
    """Disconnects while the job of the request runs. Returns the seconds until the job has ended."""
    with _connect(url) as connection:
        connection.sendall(request)
        eventually(lambda: bool(running_jobs(pid, folder)))
        _reset_on_close(connection)
    started = monotonic()
    eventually(lambda: not running_jobs(pid, folder))
    return monotonic() - started


def _open_slow_connections(url: str, key: str) -> list[socket.socket]:
    """Opens connections of all slow kinds in random order, from several addresses."""
    request = _request(key, server_process.picture(_TINY))
    sent = {"headers": b"GET / HTTP/1.1\r\nX: ", "bodies": request[: len(request) // 2], "idle": b""}
    kinds = [kind for kind, count in _SLOW_CONNECTIONS.items() for _ in range(count)]
    random.Random(9).shuffle(kinds)
    connections = []
    for number, kind in enumerate(kinds):
        connection = _connect(url, f"127.0.4.{number % _ADDRESSES + 1}")
        with suppress(ConnectionError):  # above the limit of the server
            connection.sendall(sent[kind])
        connections.append(connection)
    return connections


def _is_closed(connection: socket.socket, deadline: float) -> bool:
    """Waits until the server closes the connection. Returns False if the deadline passes first."""
    with connection:
        connection.settimeout(max(0.1, deadline - monotonic()))
        try:
            while connection.recv(65_536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


def _open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
