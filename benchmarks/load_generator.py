"""Load generator: a process that sends conversions over raw sockets, at a fixed rate or with fixed concurrency.

`generate_load` starts the process; run as a program, this module reads a LoadPlan from standard input and writes the
responses to standard output, both as JSON. HTTP libraries would limit the rate, so requests are built here.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from ipaddress import IPv4Address
from itertools import cycle, islice
from pathlib import Path
from select import EPOLLIN, EPOLLOUT, epoll
from time import monotonic
from urllib.parse import urlsplit

_MODULE = "benchmarks.load_generator"  # __name__ is "__main__" in the process
_TIMEOUT = 60.0  # seconds until a response must be complete
_FIRST_ADDRESS = IPv4Address("127.0.0.2")  # the next clients connect from the following addresses
_BOUNDARY = "a3f1c2-boundary"
_RECEIVE_SIZE = 64 << 10  # bytes
_HEADER = re.compile(rb"\r\n(content-length|retry-after|connection): ([^\r]*)")


@dataclass(frozen=True)
class LoadPlan:
    """Load for `seconds`: `rate` requests per second, or else `concurrency` requests at any time.

    Requests are distributed over the API keys. Each key is used from its own IP address. `file` is the path of the file
    to convert, posted `copies` times as `file_field` after the form fields; without one, requests are GET requests.
    Empty keys are not sent. `headers` are lines without their ends.
    """

    url: str
    keys: tuple[str, ...]
    file: str
    seconds: float
    rate: float = 0.0
    concurrency: int = 0
    fields: Mapping[str, str] = field(default_factory=lambda: {"output_format": "webp"})
    headers: tuple[str, ...] = ()
    file_field: str = "file"
    copies: int = 1


@dataclass(frozen=True)
class TimedResponse:
    """The status of a response, 0 if the connection failed. Times are in seconds of the monotonic clock."""

    status: int
    sent_at: float
    received_at: float
    retry_after: str = ""

    @property
    def seconds(self) -> float:
        """Latency."""
        return self.received_at - self.sent_at


async def generate_load(plan: LoadPlan) -> list[TimedResponse]:
    """Runs the plan in a process of its own and returns all responses."""
    command = (sys.executable, "-m", _MODULE)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        out, _ = await process.communicate(json.dumps(asdict(plan)).encode())
    finally:
        if process.returncode is None:  # cancelled
            process.kill()
            await process.wait()
    return [TimedResponse(*row) for row in json.loads(out)]


class Client:
    """An API key with its IP address, its request, and its idle connections."""

    def __init__(self, number: int, plan: LoadPlan) -> None:
        parts = urlsplit(plan.url)
        self.server = (parts.hostname or "", parts.port or 80)
        self.address = (str(_FIRST_ADDRESS + number), 0)
        self.idle: list[Connection] = []
        key = plan.keys[number]
        lines = (f"Host: {parts.netloc}", *plan.headers, *([f"Authorization: Bearer {key}"] if key else []))
        headers = "".join(f"{line}\r\n" for line in lines)
        self.request = f"GET {parts.path} HTTP/1.1\r\n{headers}\r\n".encode()
        if plan.file:
            body = _form(plan)
            headers += f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\nContent-Length: {len(body)}\r\n"
            self.request = f"POST {parts.path} HTTP/1.1\r\n{headers}\r\n".encode() + body

    def connection(self) -> Connection:
        """Returns an idle or a new connection. Raises OSError."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open():
                return connection
        return Connection(self)


def _form(plan: LoadPlan) -> bytes:
    disposition = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    values = "".join(f'{disposition}"{name}"\r\n\r\n{value}\r\n' for name, value in plan.fields.items()).encode()
    file = f'{disposition}"{plan.file_field}"; filename="a"\r\n\r\n'.encode() + Path(plan.file).read_bytes() + b"\r\n"
    return values + file * plan.copies + f"--{_BOUNDARY}--\r\n".encode()


class Connection:
    """A non-blocking connection of a client, with at most one request at a time."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.socket = socket.create_connection(client.server, timeout=_TIMEOUT, source_address=client.address)
        self.socket.setblocking(False)
        self.sent_at = 0.0
        self.registered_events = 0
        self._unsent = memoryview(b"")
        self._received = b""

    def start_request(self) -> None:
        """Starts to send the client's request. Raises OSError."""
        self.sent_at = monotonic()
        self._unsent = memoryview(self.client.request)
        self._received = b""
        self.send()

    def send(self) -> None:
        """Sends as much as possible without blocking. Raises OSError."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def is_open(self) -> bool:
        """Whether the server has kept the idle connection open."""
        if self.socket.fileno() < 0:
            return False
        with suppress(BlockingIOError):
            self.socket.recv(1, socket.MSG_PEEK)
            return False  # readable without a request: the end of the stream
        return True

    def needed_events(self) -> int:
        """The epoll events that the request waits for."""
        return EPOLLIN | (EPOLLOUT if self._unsent else 0)

    def receive(self) -> tuple[TimedResponse, bool] | None:
        """Returns the response and whether the connection is reusable; None while incomplete.

        Raises OSError, and EOFError if the server closed the connection.
        """
        data = self.socket.recv(_RECEIVE_SIZE)
        if not data:
            raise EOFError
        self._received += data
        end = self._received.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        headers = dict(_HEADER.findall(self._received[:end].lower()))
        if len(self._received) < end + int(headers[b"content-length"]):
            return None
        status = int(self._received[9:12])
        retry_after = headers.get(b"retry-after", b"").decode()
        # A connection with an unfinished request cannot send another.
        reusable = headers.get(b"connection") != b"close" and not self._unsent
        return TimedResponse(status, self.sent_at, monotonic(), retry_after=retry_after), reusable


class RequestLoop:
    """Sends requests and collects responses with epoll. Calls `on_response` with the client of each response."""

    def __init__(self, on_response: Callable[[Client], None] = lambda _: None) -> None:
        self._responses: list[TimedResponse] = []
        self._on_response = on_response
        self._epoll = epoll()
        self._registered: dict[int, Connection] = {}  # by file descriptor
        self._active: dict[Connection, None] = {}  # connections with a request, oldest request first

    def send(self, client: Client) -> None:
        """Sends the client's request."""
        started = monotonic()
        try:
            connection = client.connection()
            connection.start_request()
        except OSError:
            self._finish(client, TimedResponse(0, started, monotonic()))
            return
        self._active[connection] = None
        self._register(connection)

    def run_until(self, deadline: float) -> None:
        """Waits for events until the deadline at most, and handles them."""
        for descriptor, events in self._epoll.poll(max(0.0, deadline - monotonic())):
            self._handle(self._registered[descriptor], events)
        oldest = next(iter(self._active), None)
        if oldest is not None and monotonic() - oldest.sent_at > _TIMEOUT:
            self._fail(oldest)

    def drain(self) -> list[TimedResponse]:
        """Waits for all responses and returns them."""
        while self._active:
            self.run_until(monotonic() + 1)
        return self._responses

    def _register(self, connection: Connection) -> None:
        descriptor = connection.socket.fileno()
        events = connection.needed_events()
        if self._registered.get(descriptor) is not connection:
            self._registered[descriptor] = connection
            self._epoll.register(descriptor, events)
        elif events != connection.registered_events:
            self._epoll.modify(descriptor, events)
        connection.registered_events = events

    def _handle(self, connection: Connection, events: int) -> None:
        if connection not in self._active:  # the server closed an idle connection
            self._close(connection)
            return
        try:
            if events & EPOLLOUT:
                connection.send()
                self._register(connection)
            received = connection.receive() if events & ~EPOLLOUT else None
        except (OSError, EOFError):
            self._fail(connection)
            return
        if received is not None:
            response, reusable = received
            del self._active[connection]
            if reusable:
                connection.client.idle.append(connection)
            else:
                self._close(connection)
            self._finish(connection.client, response)

    def _fail(self, connection: Connection) -> None:
        del self._active[connection]
        self._close(connection)
        self._finish(connection.client, TimedResponse(0, connection.sent_at, monotonic()))

    def _close(self, connection: Connection) -> None:
        self._registered.pop(connection.socket.fileno(), None)
        connection.socket.close()

    def _finish(self, client: Client, response: TimedResponse) -> None:
        self._responses.append(response)
        self._on_response(client)


def _open_loop(clients: list[Client], plan: LoadPlan) -> list[TimedResponse]:
    """Sends at a fixed rate, whether or not responses arrive."""
    loop = RequestLoop()
    next_clients = cycle(clients)
    sent = 0
    started = monotonic()
    while (now := monotonic()) < started + plan.seconds:
        if now < (due := started + sent / plan.rate):
            loop.run_until(due)
        else:
            loop.send(next(next_clients))
            sent += 1
    return loop.drain()


def _closed_loop(clients: list[Client], plan: LoadPlan) -> list[TimedResponse]:
    """Sends the next request after each response. The clients take turns."""
    next_clients = cycle(clients)
    end = monotonic() + plan.seconds

    def send_next(_: Client) -> None:
        if monotonic() < end:
            loop.send(next(next_clients))

    loop = RequestLoop(send_next)
    for client in islice(next_clients, plan.concurrency):
        loop.send(client)
    return loop.drain()


def _main() -> None:
    plan = LoadPlan(**json.load(sys.stdin))
    clients = [Client(number, plan) for number in range(len(plan.keys))]
    responses = (_closed_loop if plan.concurrency else _open_loop)(clients, plan)
    json.dump([astuple(response) for response in responses], sys.stdout)


if __name__ == "__main__":
    _main()
