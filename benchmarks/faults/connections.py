"""Clients of the generated load, and their connections: bare sockets, each with one request at a time."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path
from select import EPOLLIN, EPOLLOUT
from time import monotonic
from urllib.parse import urlsplit

from benchmarks.faults.pressure import Heard, Plan

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
