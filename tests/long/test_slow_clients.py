"""Clients that disconnect, or that send slowly or nothing, and ten times the load that a server can process."""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from statistics import median
from time import sleep

import pytest

from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.processes import WORKERS, ConvertdServer
from benchmarks.report import p99
from tests.support.samples.forms import TARGET, conversion_request, form, part
from tests.support.servers.in_process import eventually
from tests.support.servers.load import (
    Clients,
    assert_no_work_files,
    charged,
    create_accounts,
    image,
    running_jobs,
    sqlite_url,
)

pytestmark = pytest.mark.long
_DISCONNECTS = 30  # at each stage
_SLOW_CONNECTIONS = {"headers": 400, "bodies": 100, "idle": 100}
_ADDRESSES = 16  # a server accepts 64 connections per address, and 512 in all
_CLOSE_TIMEOUT = 75  # seconds, longer than the timeouts of the server
_FACTOR = 10  # load as a multiple of the capacity
_ACCOUNTS = 10
_MIN_GOODPUT = 0.9  # multiple of the capacity
_MAX_MEMORY = 512 << 10  # KiB, of the server process


def test_disconnects_at_every_stage(tmp_path: Path) -> None:
    """Clients disconnect at 1, 50 and 99 % of the upload, during the conversion, and during the download.

    Jobs end, no descriptors, files or held credits are left, and at most the downloads are charged.
    """
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with ConvertdServer(tmp_path) as server:
        small, medium, large = (_request(key, size) for size in ((64, 48), (1000, 750), (4000, 3000)))
        _send_and_reset(server, small, receive=1 << 20)
        descriptors = _open_descriptors(server)
        for _ in range(_DISCONNECTS):
            for share in (0.01, 0.5, 0.99):
                _send_and_reset(server, medium[: int(len(medium) * share)])
            with _connect(server) as connection:
                connection.sendall(large)
                assert eventually(lambda: bool(running_jobs(server)))
                _reset_on_close(connection)
            assert eventually(lambda: not running_jobs(server))
            _send_and_reset(server, small, receive=100)
        assert eventually(lambda: _open_descriptors(server) <= descriptors)
        assert_no_work_files(server)
        assert charged(sqlite_url(tmp_path)) <= 1 + _DISCONNECTS


def test_slow_connections_do_not_keep_others_from_converting(tmp_path: Path) -> None:
    """600 connections from 16 addresses send headers or bodies slowly, or nothing, until the server closes all.

    Meanwhile, the first attempt of each conversion of an account that is connected succeeds.
    """
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with ConvertdServer(tmp_path) as server:
        clients = Clients(server.api, key)

        async def convert_beside_slow_connections() -> None:
            attack = asyncio.create_task(_attack(server, key, clients))
            await clients.convert_while(attack, concurrency=2)

        asyncio.run(convert_beside_slow_connections())
        assert_no_work_files(server)
    assert set(clients.statuses) == {200}
    assert charged(sqlite_url(tmp_path)) == clients.succeeded


async def _attack(server: ConvertdServer, key: str, clients: Clients) -> None:
    """Opens the connections once others are connected, and waits until the server has closed them."""
    assert await asyncio.to_thread(eventually, lambda: clients.succeeded >= 2, _CLOSE_TIMEOUT)
    connections = await asyncio.to_thread(_open_slow_connections, server, key)
    assert await asyncio.to_thread(eventually, lambda: all(map(_is_closed, connections)), _CLOSE_TIMEOUT)
    for connection in connections:
        connection.close()


def _open_slow_connections(server: ConvertdServer, key: str) -> list[socket.socket]:
    """Opens connections of all slow kinds in random order, from several addresses."""
    request = _request(key, (64, 48))
    sent = {"headers": b"GET / HTTP/1.1\r\nX: ", "bodies": request[: len(request) // 2], "idle": b""}
    kinds = [kind for kind, number in _SLOW_CONNECTIONS.items() for _ in range(number)]
    random.Random(9).shuffle(kinds)
    connections = []
    for number, kind in enumerate(kinds):
        connection = _connect(server, f"127.0.4.{number % _ADDRESSES + 1}")
        with suppress(ConnectionError):  # above the limit of the server
            connection.sendall(sent[kind])
        connection.setblocking(False)
        connections.append(connection)
    return connections


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def _request(key: str, size: tuple[int, int]) -> bytes:
    posting = f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
    file = part(image(size), 'name="file"; filename="a.png"')
    return conversion_request(posting, form(file, TARGET.replace(b"png", b"webp")))


def _connect(server: ConvertdServer, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30, source_address=(address, 0))


def _send_and_reset(server: ConvertdServer, request: bytes, receive: int = 0) -> None:
    """Sends the bytes, receives up to `receive` bytes, and resets the connection."""
    with _connect(server) as connection, suppress(ConnectionError):
        connection.sendall(request)
        if receive:
            connection.recv(receive)
        else:
            sleep(0.05)  # the server reads the bytes meanwhile
        _reset_on_close(connection)


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _open_descriptors(server: ConvertdServer) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def test_overload(tmp_path: Path, seconds: float) -> None:
    """For a minute, ten accounts send ten times the capacity, which is measured before and after.

    The server converts 90 % of the lower capacity, refuses the rest with 429 and Retry-After sooner than it converts,
    and then converts for another account. All successes are charged, refusals are not.
    """
    *keys, other_key = create_accounts(sqlite_url(tmp_path), _ACCOUNTS + 1)
    file = tmp_path / "photo.png"
    file.write_bytes(image((1200, 900)))
    with ConvertdServer(tmp_path) as server:
        plan = LoadPlan(f"{server.api}/convert", tuple(keys), str(file), seconds)
        before, overloaded, later, after = asyncio.run(_overload(plan, other_key))
        status = Path(f"/proc/{server.pid}/status").read_text()
    successes = [response for response in overloaded if response.status == HTTPStatus.OK]
    refusals = [response for response in overloaded if response.status == HTTPStatus.TOO_MANY_REQUESTS]
    assert len(successes) + len(refusals) == len(overloaded)
    assert _goodput(overloaded) >= _MIN_GOODPUT * min(_goodput(before), _goodput(after))
    assert refusals
    assert all(int(response.retry_after) > 0 for response in refusals)
    assert p99([response.seconds for response in refusals]) < median(response.seconds for response in successes)
    assert {response.status for response in (*before, *later, *after)} == {HTTPStatus.OK}
    assert int(status.split("VmHWM:")[1].split()[0]) <= _MAX_MEMORY
    assert charged(sqlite_url(tmp_path)) == len(before) + len(successes) + len(later) + len(after)


async def _overload(plan: LoadPlan, other_key: str) -> list[list[TimedResponse]]:
    """Returns the responses at the capacity, to the overload, to another account, and at the capacity again."""
    at_capacity = replace(plan, seconds=plan.seconds / 6, concurrency=2 * WORKERS)
    before = await generate_load(at_capacity)
    overloaded = await generate_load(replace(plan, rate=_FACTOR * _goodput(before)))
    later = await generate_load(replace(plan, keys=(other_key,), seconds=0.1, concurrency=1))
    return [before, overloaded, later, await generate_load(at_capacity)]


def _goodput(responses: list[TimedResponse]) -> float:
    """Successful conversions per second in the period in which requests were sent."""
    first, last = min(response.sent_at for response in responses), max(response.sent_at for response in responses)
    successes = sum(response.status == HTTPStatus.OK and response.received_at <= last for response in responses)
    return successes / (last - first)
