"""A client's connection: whoever is sent away is told why, and in the envelope."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from tornado.http1connection import HTTP1ServerConnection
from tornado.iostream import IOStream, UnsatisfiableReadError

from web.answer_bytes import malformed, refusal
from web.errors import ApiError
from web.patience import Pace

_BARE = b"HTTP/1.1 400 Bad Request\r\n\r\n"  # Tornado's word on what it cannot parse
_CONTINUE = b"HTTP/1.1 100 "
_LINGER_SECONDS = 2
_BLOCK = 64 << 10  # bytes


class Connection(IOStream):
    """A stream that keeps `pace`, and puts Tornado's bare refusals into words.

    `rate_limit` is what clients are told who cannot be understood; `linger` gets the socket of a client
    that may still be sending.
    """

    def __init__(
        self,
        socket: socket.socket,
        client: str,
        pace: Pace,
        rate_limit: int,
        linger: Callable[[socket.socket], None],
    ) -> None:
        super().__init__(socket)
        self.client = client
        self.pace = pace
        self._rate_limit = rate_limit
        self._linger = linger
        self._answered = False
        self.receiving = False  # whether a request has begun to arrive and is incomplete
        super().set_nodelay(True)

    def await_request(self) -> None:
        """Another request may come."""
        self._answered = False
        self.receiving = True
        self.pace.await_request()

    def explain(self, error: ApiError) -> None:
        """Answers with the error, if the request has no answer yet and the client is there."""
        if self.closed() or self._answered:
            return
        self._answered = True
        super().write(refusal(error, self._rate_limit))
        if not self.writing():
            # To close on a client that is sending could cost it the answer.
            self._linger(self.socket.dup())

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        if data == _BARE:
            self.explain(malformed("The request is malformed."))
            return super().write(b"")
        self._answered |= bytes(data[: len(_CONTINUE)]) != _CONTINUE
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.explain(malformed("The headers, or the line that begins a chunk, are too long."))
        super().close(exc_info)

    def set_nodelay(self, value: bool) -> None:
        """Leaves it as it is, on. Tornado would turn it on and off again with every answer."""

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        count = super().read_from_fd(buf)
        if count:
            self.pace.arrived()
        return count

    def write_to_fd(self, data: memoryview) -> int:
        count = super().write_to_fd(data)
        self.pace.taken()
        return count


def connection_of(server_connection: object) -> Connection:
    """The connection of a request's `server_connection`, as Tornado calls the one that goes on after it."""
    return cast(Connection, cast(HTTP1ServerConnection, server_connection).stream)


async def drained(rest: socket.socket) -> None:
    """Ends an answer, reads what still comes for a moment, then closes."""
    loop = asyncio.get_running_loop()
    rest.setblocking(False)
    try:
        rest.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_SECONDS):
            while await loop.sock_recv(rest, _BLOCK):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        rest.close()
