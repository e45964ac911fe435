"""Timeouts of slow clients, and a server that cannot accept connections."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tornado.web import Application

from tests.support.requests.checks import problem
from tests.support.samples.forms import FORM
from tests.support.servers.in_process import Running, Servers, eventually, parsed
from web.http.server import Server
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
    timeouts = ConnectionTimeouts(idle=60, head=20, window=20, stall=30, rate=100, average=200, grace=60, crowded=3)
    return ConnectionTimer(timeouts, clock)


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


@pytest.mark.parametrize(("last", "exceeded"), [(4000, None), (3999, Timeout.BODY)])
def test_a_whole_body_keeps_an_average(
    pace: ConnectionTimer, clock: Clock, last: int, exceeded: Timeout | None
) -> None:
    pace.restart(Timeout.BODY)
    for size in (2000, 2000, last + 4000):
        assert pace.exceeded(writing=False) is None
        clock.now += 20
        with pace.processing(size):
            pass
    assert pace.exceeded(writing=False) is exceeded  # 60 seconds have passed


def test_a_slow_body_ends_sooner_when_there_are_many_connections(pace: ConnectionTimer, clock: Clock) -> None:
    pace.restart(Timeout.BODY)
    clock.now += 3
    with pace.processing(299):
        pass
    assert pace.exceeded(writing=False) is None
    assert pace.exceeded(writing=False, crowded=True) is Timeout.BODY


def test_a_response_that_is_not_read_times_out(pace: ConnectionTimer, clock: Clock) -> None:
    pace.restart(Timeout.RESPONSE)
    clock.now += 1000
    assert pace.exceeded(writing=False) is None
    clock.now += 30
    pace.bytes_sent(3000)
    assert pace.exceeded(writing=True) is None
    clock.now += 29
    pace.bytes_sent(2999)
    assert pace.exceeded(writing=True) is None
    clock.now += 1
    assert pace.exceeded(writing=True) is Timeout.RESPONSE


@pytest.mark.parametrize(("last", "exceeded"), [(3000, None), (2999, Timeout.RESPONSE)])
def test_a_whole_response_keeps_an_average(
    pace: ConnectionTimer, clock: Clock, last: int, exceeded: Timeout | None
) -> None:
    pace.restart(Timeout.RESPONSE)
    for size in (9000, last):
        assert pace.exceeded(writing=True) is None
        clock.now += 15
        assert pace.exceeded(writing=True) is None
        clock.now += 15
        pace.bytes_sent(size)
    assert pace.exceeded(writing=True) is exceeded  # 60 seconds have passed
    pace.restart(Timeout.RESPONSE)
    clock.now += 30
    pace.bytes_sent(3000)
    assert pace.exceeded(writing=True) is None  # the next response of the connection


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
