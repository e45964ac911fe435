"""Clients that disconnect at every stage, or that send slowly or nothing, beside clients that convert."""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest

from benchmarks.processes import ConvertdServer
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
