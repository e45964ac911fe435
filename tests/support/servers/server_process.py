"""Third-party servers as processes that can be killed and stalled."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

_READY_SECONDS = 30
_FIRST_PORT, _PORTS = 12_000, 20_000


class ServerProcess(ABC):
    """A server without data on disk. Its port is the same after a restart."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """The command that starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is ready."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the server, and waits until it responds."""
        self._process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _READY_SECONDS
        while not self.answers():
            assert time.monotonic() < deadline, f"{self.command[0]} does not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stall(self) -> None:
        """Stops the process: connections are accepted, but not served."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues after `stall`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def free_port() -> int:
    """A free port, outside the range from which Linux takes the ports of outgoing connections.

    Otherwise, such a connection could take the port while its server restarts.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", _FIRST_PORT + secrets.randbelow(_PORTS)))
            return int(probe.getsockname()[1])
