"""A store that speaks S3, in a process of its own on a free port, to be killed and stalled at will."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType

import httpx
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

from tests.redis_server import free_port

_BUCKET = "convertd-tests"
_READY_SECONDS = 30


class S3Server:
    """A process that keeps everything in memory, and has the same port whenever it runs."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which clients reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str) -> str:
        """A place in its bucket."""
        return f"s3://{_BUCKET}/{prefix}"

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Starts, and waits until it answers."""
        command = [sys.executable, "-m", "tests.s3_server", str(self._port)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, "the S3 server does not start"
            time.sleep(0.05)

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
            return httpx.put(f"{self.environment['AWS_ENDPOINT_URL']}/{_BUCKET}").is_success
        except httpx.TransportError:
            return False


if __name__ == "__main__":
    # What moto's own command does, without the packages that only its other services need.
    run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
