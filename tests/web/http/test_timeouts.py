"""Timeouts of slow clients, and limits on connections."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from tornado.web import Application

from tests.support.requests.checks import problem
from tests.support.samples.forms import FORM
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from web.http.server import MAX_CONNECTIONS_PER_CLIENT, Server
from web.http.timeouts import ConnectionTimeouts, ConnectionTimer, Timeout

SHORT_TIMEOUTS = ConnectionTimeouts(idle=0.4, head=0.4, window=0.4, rate=1000, stall=0.4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> ConnectionTimer:
    return ConnectionTimer(ConnectionTimeouts(idle=60, head=20, window=20, rate=100, stall=30), clock)


@pytest.fixture(scope="module")
def strict(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with servers.running(tmp_path_factory.mktemp("strict"), timeouts=SHORT_TIMEOUTS) as running:
        yield running


def test_requests_and_their_headers_have_timeouts(pace: ConnectionTimer, clock: Clock) -> None:
    clock.now += 59
    assert pace.exceeded(writing=False) is None
    pace.bytes_received()
    clock.now += 19
    pace.bytes_received()
    assert pace.exceeded(writing=False) is None
    clock.now += 1
    assert pace.exceeded(writing=False) is Timeout.HEADERS
    pace.restart(Timeout.IDLE)
    clock.now += 60
    assert pace.exceeded(writing=False) is Timeout.IDLE


def test_a_body_keeps_its_rate_in_every_window(pace: ConnectionTimer, clock: Clock) -> None:
    pace.restart(Timeout.BODY)
    clock.now += 20
    with pace.processing(2000):
        clock.now += 100  # processing time of the server
        assert pace.exceeded(writing=False) is None
    assert pace.exceeded(writing=False) is None
    clock.now += 20
    with pace.processing(1999):
        pass
    assert pace.exceeded(writing=False) is Timeout.BODY


def test_a_response_that_is_not_read_times_out(pace: ConnectionTimer, clock: Clock) -> None:
    pace.restart(Timeout.RESPONSE)
    clock.now += 1000
    assert pace.exceeded(writing=False) is None
    clock.now += 29
    pace.bytes_sent()
    clock.now += 29
    assert pace.exceeded(writing=True) is None
    clock.now += 1
    assert pace.exceeded(writing=True) is Timeout.RESPONSE


def test_silent_clients_are_disconnected(strict: Running) -> None:
    with strict.connect() as connection:
        assert connection.recv(100) == b""


def test_slow_headers(strict: Running) -> None:
    response = parsed(strict.raw(b"GET /healthz HTTP/1.1\r\nHost: he"))
    problem(response, 408, "request_timeout", retryable=True)


def test_a_slow_body(strict: Running) -> None:
    head = f"{strict.posting}Content-Type: {FORM['Content-Type']}\r\nContent-Length: 5000\r\n\r\n"
    response = parsed(strict.raw(head.encode() + b"x"))
    problem(response, 400, "invalid_parameter")
    response = parsed(strict.raw(head.encode()))
    problem(response, 408, "request_timeout", retryable=True)
    assert eventually(lambda: not strict.work_files())


def test_an_unread_response(strict: Running) -> None:
    with strict.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            connection.sendall(b"GET /api/v1/formats HTTP/1.1\r\nHost: here\r\n\r\n" * 1_000_000)


def test_connections_of_a_client_are_bounded(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        crowd = [server.connect() for _ in range(64)]
        try:
            for connection in crowd:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
                assert parsed(read_response(connection)).status_code == 200
            response = parsed(server.raw(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"))
            problem(response, 429, "rate_limit_exceeded", reason="too_many_connections")
        finally:
            for connection in crowd:
                connection.close()
        again = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
        assert eventually(lambda: parsed(server.raw(again)).status_code == 200)


def test_connections_of_all_clients_are_bounded(servers: Servers, data_dir: Path) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"

    def status_of(connection: socket.socket) -> int:
        connection.sendall(request)
        return parsed(read_response(connection)).status_code

    timeouts = ConnectionTimeouts(crowded=60)  # the first connection is silent until all are open
    with servers.running(data_dir, timeouts=timeouts) as server, ExitStack() as closing:
        crowd = [closing.enter_context(server.connect(f"127.0.1.{number % 16}")) for number in range(512)]
        assert {status_of(connection) for connection in crowd} == {200}
        with server.connect("127.0.2.1") as checking:
            assert status_of(checking) == 200
        with server.connect("127.0.2.1") as another:
            another.sendall(request.replace(b"/healthz", b"/api/v1/formats"))
            problem(parsed(read_response(another)), 429, "rate_limit_exceeded", reason="too_many_connections")
        crowd[0].close()

        def welcome() -> bool:
            with server.connect("127.0.2.1") as another:
                another.sendall(request.replace(b"/healthz", b"/api/v1/formats"))
                return parsed(read_response(another)).status_code == 200

        assert eventually(welcome)


def test_silent_connections_are_closed_sooner_when_there_are_many(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, timeouts=ConnectionTimeouts(crowded=0.4)) as server, ExitStack() as closing:
        first = closing.enter_context(server.connect("127.0.1.0"))
        time.sleep(1.5)
        assert httpx.get(f"{server.url}/healthz").status_code == 200  # and `first` is still open
        for number in range(1, 512):
            closing.enter_context(server.connect(f"127.0.1.{number % 8}"))
        assert eventually(lambda: httpx.get(f"{server.api}/formats").status_code == 200)
        assert first.recv(1) == b""


def test_the_server_pauses_when_it_cannot_accept(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_accept_without_descriptors())
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["no connections can be accepted: Too many open files"]


async def _accept_without_descriptors() -> None:
    listener = ExhaustedListener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    server = Server(Application(), 60)
    start = time.monotonic()
    server.listen_on([listener])
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    await asyncio.sleep(1.5)
    assert 2 <= listener.attempts <= time.monotonic() - start + 1  # one per second
    listener.exhausted = False
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 404 Not Found\r\n"
    writer.close()
    server.stop_listening()
    await server.close_all_connections()


class ExhaustedListener(socket.socket):
    """Accepts no connections while there are no descriptors."""

    exhausted = True
    attempts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.attempts += 1
        if self.exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_connections_of_a_trusted_proxy_are_not_limited_per_client(address: str) -> None:
    listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setblocking(False)
    server = Server(Application([]), 60, trusted=(ip_network(address),))
    server.listen_on([listener])
    port = listener.getsockname()[1]
    crowd = [await asyncio.open_connection(address, port) for _ in range(MAX_CONNECTIONS_PER_CLIENT + 1)]
    reader, writer = crowd[-1]
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 404 Not Found\r\n"
    for _, connection in crowd:
        connection.close()
    server.stop_listening()
    await server.close_all_connections()
