"""A real server in a thread, and raw requests to it."""

import asyncio
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from config.settings import Settings
from engine.executor import Executor, LocalExecutor, TaskLimits
from engine.executor.detector import Detector
from engine.registry import Registry
from storage.database import Database, Transaction
from storage.rate_limits import MemoryRateLimiter, RateLimiter, RateLimitStatus
from storage.tables import accounts, api_keys, ledger
from tests.support.requests import http
from tests.support.requests.checks import conforms
from tests.support.samples.databases import new_sqlite_url
from web.app import assemble, listening
from web.http.connections import ConnectionTimeouts


@dataclass(frozen=True)
class Running:
    """A running server. `checkout_code` is the code of its simulated checkout."""

    url: str
    data_dir: Path
    database: Database
    checkout_code: str = ""
    key: str = ""

    @property
    def api(self) -> str:
        return f"{self.url}/api/v1"

    @property
    def auth(self) -> dict[str, str]:
        """The Authorization header of an account with a million credits."""
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def posting(self) -> str:
        """The first header lines of a conversion request."""
        return f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {self.key}\r\n"

    def account(self, credits: int = 50, *, verified: bool = True, purchased: int = 0) -> str:
        """The key of a new account."""
        return self.database.run_blocking(_account, credits, verified, purchased)

    def work_files(self) -> list[str]:
        """The open uploads and results of requests in progress."""
        return open_work_files(self.data_dir)

    def convert(self, content: bytes, target: str = "png", **form: Any) -> httpx.Response:
        """Converts in one request. `headers` and `name` are not form fields."""
        headers, name = {**self.auth, **form.pop("headers", {})}, form.pop("name", "photo.jpg")
        data = {"output_format": target, **form}
        files = {"file": (name, content)}
        return conforms(http.post(f"{self.api}/convert", files=files, data=data, headers=headers, timeout=60))

    def request(self, method: str, path: str, key: str = "", **options: Any) -> httpx.Response:
        """Sends a request with this API key or `self.key`. Asserts that the response is as documented."""
        headers = {"Authorization": f"Bearer {key or self.key}", **options.pop("headers", {})}
        return conforms(http.request(method, f"{self.api}{path}", headers=headers, timeout=120, **options))

    def upload(self, content: bytes, name: str = "photo.jpg", path: str = "/files/upload", key: str = "") -> Any:
        """Uploads a file and returns the `data` of the response."""
        response = self.request("POST", path, key, files={"file": (name, content)})
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        """A connection from a loopback address."""
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), timeout=20, source_address=(address, 0))

    def raw(self, request: bytes) -> bytes:
        """Sends the bytes and returns the first response, complete or cut off."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_response(connection)


class LenientRateLimiter(MemoryRateLimiter):
    """Never refuses failed authentications: many tests send invalid keys to the same server."""

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await super().hit(key, sys.maxsize if key.startswith("failures:") else limit, window)


class Servers:
    """Servers that share a loop, a registry and an executor."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.executor = LocalExecutor(2)
        self.detector = Detector(registry, self.executor.pool)
        self.run(self.executor.start())

    def close(self) -> None:
        self.run(self.executor.close())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def running(
        self,
        data_dir: Path,
        executor: Executor | None = None,
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),
        port: int = 0,
        limiter: RateLimiter | None = None,
        short_deadline: float = TaskLimits().seconds,
        registry: Registry | None = None,
        **settings: Any,
    ) -> Iterator[Running]:
        """A server with these settings, on that port or a free one. `limiter` replaces the one of the settings.

        By default, new accounts have as much time for a job as others: the machine may be busy.
        """
        usual = {"workers": 2, "rate_limit_anonymous": 10_000, "metrics_port": 0}
        if "database_url" not in settings:
            new_sqlite_url(data_dir)
        chosen = Settings(data_dir=data_dir, **{**usual, **settings}).at_port(port)
        services = assemble(chosen, registry or self.registry, executor or self.executor)
        services.limiter = services.limiter if limiter is None else limiter  # an empty one is false
        services.admission.short_deadline = short_deadline
        server = listening(services, "127.0.0.1", port, timeouts)
        url = self.run(server.__aenter__())
        try:
            simulation = services.payments.simulation
            running = Running(url, data_dir, services.database, simulation.code if simulation else "")
            yield replace(running, key=running.account(1_000_000, purchased=1))
        finally:
            self.run(server.__aexit__(None, None, None))
            self.run(services.close())

    def run(self, work: Any) -> Any:
        """Runs a coroutine in the loop of the servers."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def block(self, function: Callable[[], object]) -> None:
        """Calls a function in the loop of the servers, which do nothing meanwhile."""

        async def call() -> None:
            function()

        self.run(call())


def open_work_files(data_dir: Path, pid: int | str = "self") -> list[str]:
    """The uploads and results that a server process has open, in memory or on the disk."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed since it was listed
            found.append(str(entry.readlink()))
    return [name for name in found if name.startswith(("/memfd:convertd-work-file", f"{data_dir}/jobs/"))]


def _account(transaction: Transaction, credits: int, verified: bool, purchased: int) -> str:
    email = f"{secrets.token_hex(8)}@example.com"
    made = accounts.create(transaction, email, "Test", free_credits=credits, verified=verified)
    if purchased:
        ledger.credit(transaction, made.id, "purchase", purchased, ref=f"test:{made.id}")
    return api_keys.issue(transaction, made.id, "Test").text


def read_response(connection: socket.socket) -> bytes:
    """Receives one response, up to its Content-Length or the end of the connection."""
    response = b""
    while not _is_complete_response(response):
        piece = connection.recv(65_536)
        if not piece:
            break
        response += piece
    return response


def _is_complete_response(response: bytes) -> bool:
    head, found, body = response.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(found and lengths and len(body) >= lengths[0])


def parsed(response: bytes) -> httpx.Response:
    """Parses a response."""
    head, _, body = response.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return httpx.Response(int(status_line.split()[1]), headers=headers, content=body, extensions={"raw": True})


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Waits for the condition. Returns whether it was met within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
