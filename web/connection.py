"""A client's connection: whoever is sent away is told why, and in the envelope."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tornado.http1connection import HTTP1ServerConnection
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream, UnsatisfiableReadError

from web.answer_bytes import malformed, refusal
from web.errors import ApiError
from web.moderation import Moderation
from web.patience import Pace
from web.retries import Refused

log = logging.getLogger("convertd.web")

_BARE = b"HTTP/1.1 400 Bad Request\r\n\r\n"  # Tornado's word on what it cannot parse
_CONTINUE = b"HTTP/1.1 100 "
_LINGER_SECONDS = 2
_BLOCK = 64 << 10  # bytes


class Connection(IOStream):
    """A stream that keeps `pace`, and puts Tornado's bare refusals into words.

    `rate_limit` is what clients are told who cannot be understood; `linger` gets the socket of a client
    that may still be sending; `moderation` listens to those that were put off.
    """

    def __init__(
        self,
        socket: socket.socket,
        client: str,
        pace: Pace,
        rate_limit: int,
        linger: Callable[[socket.socket], None],
        moderation: Moderation,
    ) -> None:
        super().__init__(socket)
        self.client = client
        self.pace = pace
        self._rate_limit = rate_limit
        self._linger = linger
        self._moderation = moderation
        self._answered = False
        self._put_off = False
        self._refused: Refused | None = None
        self._refusing: asyncio.Future[None] | None = None
        self.head = b""
        super().set_nodelay(True)

    def await_request(self) -> None:
        """Another request may come."""
        self._answered = False
        self.pace.await_request()

    def put_off(self, refused: Refused | None) -> None:
        """The next request may wait for a moment, and is not taken apart if it is the `refused` one again."""
        self._put_off = True
        self._refused = refused

    def explain(self, error: ApiError) -> None:
        """Answers with the error, if the request has no answer yet and the client is there."""
        if self.closed() or self._answered:
            return
        self._answered = True
        super().write(refusal(error, self._rate_limit))
        if not self.writing():
            # To close on a client that is sending could cost it the answer.
            self._linger(self.socket.dup())

    async def read_until_regex(self, regex: bytes, max_bytes: int | None = None) -> bytes:
        """Reads the head of a request, which stays known until the next. Tornado reads nothing else in this way."""
        self.head = await super().read_until_regex(regex, max_bytes)
        return self.head

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        if data == _BARE:
            self.explain(malformed("The request is malformed."))
            return super().write(b"")
        self._answered |= bytes(data[: len(_CONTINUE)]) != _CONTINUE
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.explain(malformed("The headers, or the line that begins a chunk, are too long."))
        if not self.closed():
            self._moderation.forget(self.socket.fileno())
        super().close(exc_info)

    def set_nodelay(self, value: bool) -> None:
        """Leaves it as it is, on. Tornado would turn it on and off again with every answer."""

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        count = super().read_from_fd(buf)
        if count:
            self._put_off = False
            self.pace.arrived()
        return count

    def write_to_fd(self, data: memoryview) -> int:
        count = super().write_to_fd(data)
        self.pace.taken()
        return count

    def _add_io_state(self, state: int) -> None:
        # Where Tornado, which has no public place for it, begins to listen.
        if state == IOLoop.READ and self._may_wait():
            self._moderation.wait(self.socket.fileno(), self._hear)
        else:
            super()._add_io_state(state)

    def _may_wait(self) -> bool:
        """Whether the next request may, and Tornado does not listen for it already."""
        return self._put_off and not self.closed() and not (self._state or 0) & IOLoop.READ

    def _hear(self) -> bool:
        """Something has come from a client that was put off. Gives whether what comes next may wait as well."""
        if self._refusing is not None:
            return True
        if not self._may_wait():
            return False
        refuse = self._refused.again() if self._refused and self._has_come_again(self._refused) else None
        if refuse is None:
            super()._add_io_state(IOLoop.READ)
            return False
        self._refusing = asyncio.ensure_future(self._refuse(refuse))
        return True

    def _has_come_again(self, refused: Refused) -> bool:
        return self.reading() and not self._read_buffer and not self.writing() and refused.has_come(self.socket)

    async def _refuse(self, refuse: Callable[[], Awaitable[bytes]]) -> None:
        assert self._refused is not None
        try:
            self._refused.pass_over(self.socket)
            answer = await refuse()
            if not self.closed():
                self.pace.await_request()
                super().write(answer)
                self._add_io_state(IOLoop.READ)
        except Exception:
            log.exception("a request could not be refused")
            self.close()
        finally:
            self._refusing = None


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
