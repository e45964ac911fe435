"""Generates load: reads a Plan as JSON from standard input, and prints the answers as JSON.

It works on bare sockets, as what it takes of the machine is missing to the server.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic
from urllib.parse import urlsplit

from benchmarks.faults.pressure import Heard, Plan

_FIRST_ADDRESS = 2  # the clients come from 127.0.0.2 and so on
_BOUNDARY = "a3f1c2-boundary"
_PATIENCE = 60.0  # seconds
_BLOCK = 64 << 10  # bytes
_FIELD = re.compile(rb"\r\n(content-length|retry-after|connection): ([^\r]*)")


class _Client:
    """One address with one key, its request, and its connections that may be used again."""

    def __init__(self, number: int, plan: Plan) -> None:
        parts = urlsplit(plan.url)
        self.server = (parts.hostname or "", parts.port or 80)
        self.address = (f"127.0.0.{_FIRST_ADDRESS + number}", 0)
        self.idle: list[_Connection] = []
        body = _body(Path(plan.file).read_bytes())
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {plan.keys[number]}\r\n"
            f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body

    def connection(self) -> _Connection:
        """One that can be asked. Raises OSError."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open():
                return connection
            connection.socket.close()
        return _Connection(self)


class _Connection:
    """A connection of a client, which asks one thing after the other."""

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.socket = socket.create_connection(client.server, timeout=_PATIENCE, source_address=client.address)
        self.socket.setblocking(False)
        self.asked = 0.0
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
        with suppress(BlockingIOError):
            self.socket.recv(1, socket.MSG_PEEK)
            return False  # as nothing is to be received but the end
        return True

    def awaited(self) -> int:
        """The events to go on with."""
        return EVENT_READ | (EVENT_WRITE if self._unsent else 0)

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


class _Load:
    """Requests on their way; `then` is called with the client of each that has ended."""

    def __init__(self, then: Callable[[_Client], None] = lambda _: None) -> None:
        self.heard: list[Heard] = []
        self._then = then
        self._selector = DefaultSelector()
        self._asking: dict[_Connection, None] = {}  # in the order in which they have asked

    def ask(self, client: _Client) -> None:
        """Makes the client's request."""
        asked, connection = monotonic(), None
        try:
            connection = client.connection()
            connection.ask()
        except OSError:
            self._end(client, Heard(0, asked, monotonic()))
            return
        self._asking[connection] = None
        self._selector.register(connection.socket, connection.awaited(), connection)

    def go_on(self, until: float) -> None:
        """Sends and takes what can be sent and taken, and waits for it until then at most."""
        for key, events in self._selector.select(max(0.0, until - monotonic())):
            self._advance(key.data, events)
        oldest = next(iter(self._asking), None)
        if oldest is not None and monotonic() - oldest.asked > _PATIENCE:
            self._give_up(oldest)

    def finish(self) -> list[Heard]:
        """Waits for what is on its way, and gives all answers."""
        while self._asking:
            self.go_on(monotonic() + 1)
        return self.heard

    def _advance(self, connection: _Connection, events: int) -> None:
        try:
            if events & EVENT_WRITE:
                connection.send()
                self._selector.modify(connection.socket, connection.awaited(), connection)
            answer = connection.take() if events & EVENT_READ else None
        except (OSError, EOFError):
            self._give_up(connection)
            return
        if answer is not None:
            heard, keep = answer
            self._leave(connection, keep=keep)
            self._end(connection.client, heard)

    def _give_up(self, connection: _Connection) -> None:
        self._leave(connection, keep=False)
        self._end(connection.client, Heard(0, connection.asked, monotonic()))

    def _leave(self, connection: _Connection, *, keep: bool) -> None:
        del self._asking[connection]
        self._selector.unregister(connection.socket)
        # One that has not sent all of its request cannot send another.
        if keep and connection.awaited() == EVENT_READ:
            connection.client.idle.append(connection)
        else:
            connection.socket.close()

    def _end(self, client: _Client, heard: Heard) -> None:
        self.heard.append(heard)
        self._then(client)


def _body(content: bytes) -> bytes:
    opening = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    field = f'{opening}"output_format"\r\n\r\nwebp\r\n'
    file = f'{opening}"file"; filename="a"\r\n\r\n'
    return f"{field}{file}".encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()


def _at_rate(clients: list[_Client], plan: Plan) -> list[Heard]:
    load, turns, asked, began = _Load(), cycle(clients), 0, monotonic()
    while (now := monotonic()) < began + plan.seconds:
        if now < (due := began + asked / plan.rate):
            load.go_on(due)
        else:
            load.ask(next(turns))
            asked += 1
    return load.finish()


def _in_turn(clients: list[_Client], plan: Plan) -> list[Heard]:
    end = monotonic() + plan.seconds

    def again(client: _Client) -> None:
        if monotonic() < end:
            load.ask(client)

    load = _Load(again)
    for client in islice(cycle(clients), plan.clients):
        load.ask(client)
    return load.finish()


def _main() -> None:
    plan = Plan(**json.load(sys.stdin))
    clients = [_Client(number, plan) for number in range(len(plan.keys))]
    answers = (_in_turn if plan.clients else _at_rate)(clients, plan)
    json.dump([list(asdict(answer).values()) for answer in answers], sys.stdout)


if __name__ == "__main__":
    _main()
