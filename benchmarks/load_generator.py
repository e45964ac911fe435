"""Clients of the generated load, and their connections: bare sockets, each with one request at a time."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from select import EPOLLIN, EPOLLOUT, epoll
from time import monotonic
from urllib.parse import urlsplit

PATIENCE = 60.0
"""Seconds in which an answer has to come."""

_FIRST_ADDRESS = 2  # the clients come from 127.0.0.2 and so on
_BOUNDARY = "a3f1c2-boundary"
_BLOCK = 64 << 10  # bytes
_FIELD = re.compile(rb"\r\n(content-length|retry-after|connection): ([^\r]*)")


class Client:
    """One address with one key, its request, and its connections that may be used again."""

    def __init__(self, number: int, plan: Plan) -> None:
        parts = urlsplit(plan.url)
        self.server = (parts.hostname or "", parts.port or 80)
        self.address = (f"127.0.0.{_FIRST_ADDRESS + number}", 0)
        self.idle: list[Connection] = []
        body = _body(Path(plan.file).read_bytes())
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {plan.keys[number]}\r\n"
            f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body

    def connection(self) -> Connection:
        """One that can be asked. Raises OSError."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open():
                return connection
        return Connection(self)


class Connection:
    """A connection of a client, which asks one thing after the other."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.socket = socket.create_connection(client.server, timeout=PATIENCE, source_address=client.address)
        self.socket.setblocking(False)
        self.asked = 0.0
        self.listened = 0  # the events that are waited for
        self._unsent = memoryview(b"")
        self._received = b""

    def ask(self) -> None:
        """Begins to send the client's request. Raises OSError."""
        self.asked = monotonic()
        self._unsent = memoryview(self.client.request)
        self._received = b""
        self.send()

    def send(self) -> None:
        """Sends what can be sent now. Raises OSError."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def is_open(self) -> bool:
        """Whether the server has not closed it while it was idle."""
        if self.socket.fileno() < 0:
            return False
        with suppress(BlockingIOError):
            self.socket.recv(1, socket.MSG_PEEK)
            return False  # as nothing is to be received but the end
        return True

    def awaited(self) -> int:
        """The events to go on with."""
        return EPOLLIN | (EPOLLOUT if self._unsent else 0)

    def take(self) -> tuple[Heard, bool] | None:
        """The answer, once it is whole, and whether the connection may be used again. Raises OSError, EOFError too."""
        data = self.socket.recv(_BLOCK)
        if not data:
            raise EOFError
        self._received += data
        end = self._received.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        fields = dict(_FIELD.findall(self._received[:end].lower()))
        if len(self._received) < end + int(fields[b"content-length"]):
            return None
        status, retry_after = int(self._received[9:12]), fields.get(b"retry-after", b"").decode()
        return Heard(status, self.asked, monotonic(), retry_after), fields.get(b"connection") != b"close"


def _body(content: bytes) -> bytes:
    opening = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    field = f'{opening}"output_format"\r\n\r\nwebp\r\n'
    file = f'{opening}"file"; filename="a"\r\n\r\n'
    return f"{field}{file}".encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()


class _Load:
    """Requests on their way; `then` is called with the client of each that has ended."""

    def __init__(self, then: Callable[[Client], None] = lambda _: None) -> None:
        self.heard: list[Heard] = []
        self._then = then
        self._epoll = epoll()
        self._connections: dict[int, Connection] = {}  # by descriptor: those that are listened to
        self._asking: dict[Connection, None] = {}  # in the order in which they have asked

    def ask(self, client: Client) -> None:
        """Makes the client's request."""
        asked = monotonic()
        try:
            connection = client.connection()
            connection.ask()
        except OSError:
            self._end(client, Heard(0, asked, monotonic()))
            return
        self._asking[connection] = None
        self._listen(connection)

    def go_on(self, until: float) -> None:
        """Sends and takes what can be sent and taken, and waits for it until then at most."""
        for descriptor, events in self._epoll.poll(max(0.0, until - monotonic())):
            self._advance(self._connections[descriptor], events)
        oldest = next(iter(self._asking), None)
        if oldest is not None and monotonic() - oldest.asked > PATIENCE:
            self._give_up(oldest)

    def finish(self) -> list[Heard]:
        """Waits for what is on its way, and gives all answers."""
        while self._asking:
            self.go_on(monotonic() + 1)
        return self.heard

    def _listen(self, connection: Connection) -> None:
        descriptor, awaited = connection.socket.fileno(), connection.awaited()
        if self._connections.get(descriptor) is not connection:
            self._connections[descriptor] = connection
            self._epoll.register(descriptor, awaited)
        elif awaited != connection.listened:
            self._epoll.modify(descriptor, awaited)
        connection.listened = awaited

    def _advance(self, connection: Connection, events: int) -> None:
        if connection not in self._asking:  # the server has closed it while it was idle
            self._close(connection)
            return
        try:
            if events & EPOLLOUT:
                connection.send()
                self._listen(connection)
            answer = connection.take() if events & ~EPOLLOUT else None
        except (OSError, EOFError):
            self._give_up(connection)
            return
        if answer is not None:
            heard, keep = answer
            del self._asking[connection]
            # One that has not sent all of its request cannot send another.
            if keep and connection.awaited() == EPOLLIN:
                connection.client.idle.append(connection)
            else:
                self._close(connection)
            self._end(connection.client, heard)

    def _give_up(self, connection: Connection) -> None:
        del self._asking[connection]
        self._close(connection)
        self._end(connection.client, Heard(0, connection.asked, monotonic()))

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()

    def _end(self, client: Client, heard: Heard) -> None:
        self.heard.append(heard)
        self._then(client)


def _at_rate(clients: list[Client], plan: Plan) -> list[Heard]:
    load, job_queue, asked, began = _Load(), cycle(clients), 0, monotonic()
    while (now := monotonic()) < began + plan.seconds:
        if now < (due := began + asked / plan.rate):
            load.go_on(due)
        else:
            load.ask(next(job_queue))
            asked += 1
    return load.finish()


def _in_turn(clients: list[Client], plan: Plan) -> list[Heard]:
    end = monotonic() + plan.seconds

    def again(client: Client) -> None:
        if monotonic() < end:
            load.ask(client)

    load = _Load(again)
    for client in islice(cycle(clients), plan.clients):
        load.ask(client)
    return load.finish()


def _main() -> None:
    plan = Plan(**json.load(sys.stdin))
    clients = [Client(number, plan) for number in range(len(plan.keys))]
    answers = (_in_turn if plan.clients else _at_rate)(clients, plan)
    json.dump([list(asdict(answer).values()) for answer in answers], sys.stdout)


if __name__ == "__main__":
    _main()


_GENERATOR = "benchmarks.load_generator"


@dataclass(frozen=True)
class Plan:
    """What to send: `rate` requests a second for `seconds`, each key in turn and from an address of its own.

    With `clients`, that many ask one request after the other instead, and the rate is what comes of it.
    """

    url: str
    keys: tuple[str, ...]
    file: str  # the path of what to convert
    seconds: float
    rate: float = 0.0
    clients: int = 0


@dataclass(frozen=True)
class Heard:
    """An answer; times in seconds of the machine's clock. Status 0 where none came."""

    status: int
    asked: float
    came: float
    retry_after: str = ""

    @property
    def seconds(self) -> float:
        return self.came - self.asked


async def carry_out(plan: Plan) -> list[Heard]:
    """The plan's answers, in a process of their own."""
    command = (sys.executable, "-m", _GENERATOR)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await process.communicate(json.dumps(asdict(plan)).encode())
    return [Heard(*row) for row in json.loads(out)]
