"""Requests that come again after they were refused: the same bytes mean the same, so nobody takes them apart."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from struct import calcsize
from termios import FIONREAD

_COUNT = bytes(calcsize("i"))


@dataclass(frozen=True)
class Refused:
    """A request that was refused: its head with the empty line, and how many bytes its body had.

    `again` gives what refuses it once more, which makes a whole answer, or None where it has to be looked at.
    """

    head: bytes
    body: int
    again: Callable[[], Callable[[], Awaitable[bytes]] | None]

    def has_come(self, connection: socket.socket) -> bool:
        """Whether what has come begins with the same request, complete. Its body may be another."""
        with suppress(OSError):
            return connection.recv(len(self.head), socket.MSG_PEEK) == self.head and _come(connection) >= self._size
        return False

    def pass_over(self, connection: socket.socket) -> None:
        """Takes the request that has come from the connection, without a look at it. Raises OSError."""
        left = self._size
        while left:
            left -= len(connection.recv(left, socket.MSG_TRUNC)) or left

    @property
    def _size(self) -> int:
        return len(self.head) + self.body


def _come(connection: socket.socket) -> int:
    """How many bytes have come that nobody has taken yet."""
    return int.from_bytes(ioctl(connection, FIONREAD, _COUNT), sys.byteorder)
