"""Limits on connections, which of too many a server gives up, and timeouts of slow clients."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from tornado.web import Application

from tests.support.requests.checks import problem
from tests.support.samples.forms import FORM
from tests.support.samples.storage import Clock
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from web.http.connections import (
    Connection,
    Connections,
    ConnectionTimeouts,
    ConnectionTimer,
    Timeout,
    too_many_connections,
)
from web.http.server import MAX_CONNECTIONS_PER_CLIENT, Server

ADDRESSES = 8  # together they have as many connections as a server accepts
PROXIES = (ip_network("127.0.3.0/24"),)
CONTINUE = b"HTTP/1.1 100 (Continue)\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
FORMATS = b"GET /api/v1/formats HTTP/1.1\r\nHost: here\r\n\r\n"
PATIENT = ConnectionTimeouts(crowded=60, stall=1)  # a quarter of the shortest time passes between checks
SHORT_TIMEOUTS = ConnectionTimeouts(idle=0.4, head=0.4, window=0.4, rate=1000, stall=0.4)


def half_sent(head: str, *more: str) -> bytes:
    """A request with the first byte of its body. The server confirms that it has read the headers."""
    form = "Content-Type: multipart/form-data; boundary=b"
    lines = [*more, "Expect: 100-continue", form, "Content-Length: 60000", "", "\r"]
    return (head + "\r\n".join(lines)).encode()


@pytest.fixture
def server(servers: Servers, data_dir: Path) -> Iterator[Running]:
    """A server that closes silent connections only to make room for others."""
    with servers.running(data_dir, timeouts=PATIENT, rate_limit_paid=10_000, trusted_proxies=PROXIES) as running:
        yield running


def status_of(connection: socket.socket, request: bytes = HEALTH) -> int:
    connection.sendall(request)
    return parsed(read_response(connection)).status_code


def crowd(
    server: Running, closing: ExitStack, request: bytes, number: int = 512, network: str = "127.0.1"
) -> list[socket.socket]:
    """Connections of a few addresses that have sent these bytes."""
    opened = [closing.enter_context(server.connect(f"{network}.{index % ADDRESSES}")) for index in range(number)]
    for connection in opened:
        connection.sendall(request)
    for connection in opened if request else ():
        assert connection.recv(100) == CONTINUE
    return opened


def received(connection: socket.socket) -> bytes | None:
    """What has arrived; empty if the connection is closed, None if nothing has arrived."""
    connection.setblocking(False)
    try:
        return connection.recv(65_536)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


def test_connections_of_a_client_are_bounded(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        with ExitStack() as closing:
            for _ in range(MAX_CONNECTIONS_PER_CLIENT):
                assert status_of(closing.enter_context(server.connect())) == 200
            problem(parsed(server.raw(HEALTH)), 429, "rate_limit_exceeded", reason="too_many_connections")
        assert eventually(lambda: parsed(server.raw(HEALTH)).status_code == 200)


def test_half_sent_bodies_of_few_clients_do_not_keep_others_out(server: Running) -> None:
    with ExitStack() as closing:
        attackers = crowd(server, closing, half_sent(server.posting))
        others = [closing.enter_context(server.connect(f"127.0.2.{number}")) for number in range(20)]
        assert [status_of(other, FORMATS) for other in others] == [200] * 20
        given_up = [answer for connection in attackers if (answer := received(connection)) is not None]
        assert len(given_up) == 20
        problem(parsed(given_up[0]), 429, "rate_limit_exceeded", reason="too_many_connections")


def test_a_client_does_not_take_the_place_of_one_with_as_many(server: Running) -> None:
    with ExitStack() as closing:
        crowd(server, closing, b"")
        opened = [closing.enter_context(server.connect("127.0.2.1")) for _ in range(MAX_CONNECTIONS_PER_CLIENT)]
        statuses = [status_of(connection, FORMATS) for connection in opened]
    share = 512 // (ADDRESSES + 1)
    assert statuses == [200] * share + [429] * (MAX_CONNECTIONS_PER_CLIENT - share)


def test_health_is_checked_while_no_connection_can_be_given_up(server: Running) -> None:
    """A proxy that has no request closes its connections itself."""
    with ExitStack() as closing:
        opened = crowd(server, closing, b"", network="127.0.3")
        with server.connect("127.0.2.1") as checking:
            assert [status_of(checking, one) for one in (HEALTH, HEALTH.replace(b"health", b"live"))] == [200, 200]
        with server.connect("127.0.2.1") as another:
            another.sendall(FORMATS)
            problem(parsed(read_response(another)), 429, "rate_limit_exceeded", reason="too_many_connections")
        opened[0].close()

        def welcome() -> bool:
            with server.connect("127.0.2.1") as another:
                return status_of(another, FORMATS) == 200

        assert eventually(welcome)


def test_requests_of_a_proxy_count_for_their_clients(server: Running) -> None:
    """Until they have their responses: then the connection is of the proxy again."""

    def forwarded(address: str) -> str:
        return f"X-Forwarded-For: {address}"

    def reading(address: str) -> bytes:
        return FORMATS[:-2] + f"{forwarded(address)}\r\n\r\n".encode()

    with ExitStack() as closing:
        idle = crowd(server, closing, b"", 300, "127.0.3")
        assert {status_of(connection, reading("192.0.2.2")) for connection in idle} == {200}
        attackers = crowd(server, closing, half_sent(server.posting, forwarded("192.0.2.1")), 200, "127.0.3")
        others = crowd(server, closing, half_sent(server.posting, forwarded("192.0.2.2")), 12, "127.0.3")
        for _ in range(20):
            with server.connect("127.0.3.1") as another:
                assert status_of(another, reading("192.0.2.3")) == 200
        assert any(received(attacker) is not None for attacker in attackers)
        assert {received(other) for other in (*others, *idle)} == {None}


def test_bodies_without_an_account_end_at_once_when_there_are_many(server: Running) -> None:
    def opened(head: str) -> socket.socket:
        connection = closing.enter_context(server.connect("127.0.2.1"))
        connection.sendall(half_sent(head))
        return connection

    with ExitStack() as closing:
        kept = opened(server.posting)
        assert kept.recv(100) == CONTINUE
        crowd(server, closing, b"", 384)
        refused = {"/nothing": 404, "/api/v1/convert": 401}
        anonymous = {"/dashboard/sign-in": 429, "/try/convert": 429}
        for path, status in (refused | anonymous).items():
            with opened(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n").makefile(
                "rb"
            ) as answer:
                assert parsed(answer.read().removeprefix(CONTINUE)).status_code == status
        assert received(kept) is None


def test_silent_connections_are_closed_sooner_when_there_are_many(servers: Servers, data_dir: Path) -> None:
    timeouts = ConnectionTimeouts(crowded=0.4, stall=1)
    with servers.running(data_dir, timeouts=timeouts) as server, ExitStack() as closing:
        first = closing.enter_context(server.connect("127.0.1.0"))
        time.sleep(0.8)
        assert received(first) is None
        crowd(server, closing, b"", 500)
        assert eventually(lambda: received(first) == b"")


@dataclass
class Opened:
    """Connections that are opened one second after the other, and the other ends of them."""

    closing: ExitStack
    clock: Clock = field(default_factory=Clock)
    connections: Connections = field(default_factory=lambda: Connections(512, 64))
    clients: dict[Connection, socket.socket] = field(default_factory=dict)
    lingering: list[socket.socket] = field(default_factory=list)

    def __call__(
        self, client: str, state: Timeout, *, account: bool = True, responded: bool = False, proxy: bool = False
    ) -> Connection:
        self.clock.now += 1
        ours, theirs = map(self.closing.enter_context, socket.socketpair())
        timer = ConnectionTimer(ConnectionTimeouts(window=20), self.clock)
        made = Connection(ours, client, client, timer, 60, self.lingering.append, is_proxy=proxy, only_health=False)
        timer.restart(state)
        made.has_account, made.responded = account, responded
        self.connections.add(made)
        self.clients[made] = theirs
        return made


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    with ExitStack() as closing:
        opened = Opened(closing)
        yield opened
        for connection in opened.clients:
            connection.close()
        for left in opened.lingering:
            left.close()


async def test_the_connection_to_give_up_is_of_the_client_with_most(opened: Opened) -> None:
    opened("a", Timeout.IDLE)
    bodies = [opened("b", Timeout.BODY) for _ in range(2)]
    connections = opened.connections
    assert connections.least_valuable(0) is bodies[0]
    assert connections.least_valuable(1) is None  # the client would have fewer than the other then
    assert opened("b", Timeout.HEADERS) is connections.least_valuable(1)
    assert connections.least_valuable(2) is None
    connections.remove(bodies[0])
    connections.remove(bodies[0])
    assert (connections.by_client["b"], len(connections.open)) == (2, 3)


async def test_the_order_in_which_connections_are_given_up(opened: Opened) -> None:
    expected = [
        opened("a", Timeout.HEADERS),
        opened("a", Timeout.BODY),
        opened("a", Timeout.BODY),
        opened("a", Timeout.IDLE),
        opened("a", Timeout.BODY, account=False),
        opened("a", Timeout.BODY, responded=True),
    ]
    opened("a", Timeout.RESPONSE)  # the server has not sent it
    opened("a", Timeout.IDLE, proxy=True)
    processed, connections = opened("a", Timeout.BODY), opened.connections
    with processed.timer.processing():
        for index in (5, 4, 3, 0, 1, 2):
            assert connections.least_valuable(0) is expected[index]
            connections.remove(expected[index])
        assert connections.least_valuable(0) is None
    assert connections.least_valuable(0) is processed


@pytest.mark.parametrize(
    ("state", "responded", "sent", "lingers"),
    [
        (Timeout.IDLE, False, b"", False),
        (Timeout.HEADERS, False, b"HTTP/1.1 429 ", True),
        (Timeout.BODY, False, b"HTTP/1.1 429 ", True),
        (Timeout.BODY, True, b"", True),  # the client may not have received the response
        (Timeout.RESPONSE, True, b"", False),
    ],
)
async def test_what_is_given_up(opened: Opened, state: Timeout, responded: bool, sent: bytes, lingers: bool) -> None:
    connection = opened("a", state, responded=responded)
    connection.give_up(too_many_connections())
    assert connection.closed()
    assert len(opened.lingering) == lingers
    assert (received(opened.clients[connection]) or b"").startswith(sent)


async def test_only_slow_clients_are_given_up_for_space(opened: Opened) -> None:
    body, processed, idle = opened("a", Timeout.BODY), opened("a", Timeout.BODY), opened("a", Timeout.IDLE)
    opened.clock.now += 17  # 19 seconds since the first was opened
    with body.timer.processing(1 << 30):
        opened.clock.now += 100
    assert not body.give_up_if_slow()
    opened.clock.now += 1
    with processed.timer.processing():
        assert [one.give_up_if_slow() for one in (body, processed, idle)] == [True, False, False]
    assert [one.closed() for one in (body, processed, idle)] == [True, False, False]
    problem(parsed(opened.clients[body].recv(4096)), 429, "rate_limit_exceeded", reason="queue_full")


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
def test_a_body_keeps_an_average(pace: ConnectionTimer, clock: Clock, last: int, exceeded: Timeout | None) -> None:
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
def test_a_response_keeps_an_average(pace: ConnectionTimer, clock: Clock, last: int, exceeded: Timeout | None) -> None:
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
