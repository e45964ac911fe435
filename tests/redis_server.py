"""A real Redis on a free port, to be killed and stalled at will."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

_READY_SECONDS = 10


class RedisServer:
    """A process that keeps nothing on disk, and has the same port whenever it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Starts, and waits until it answers."""
        port, folder = str(self._port), str(self._folder)
        options = ["--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", folder]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stall(self) -> None:
        """Lets it hang: connections are taken, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on after a stall."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
