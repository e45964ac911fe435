"""A proxy between a client and a server, on which requests go wrong as a test wants it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

import httpx

from tests.support import http


@dataclass(frozen=True)
class Seen:
    """A request that came to the proxy."""

    line: str
    headers: Mapping[str, str]


@dataclass
class Proxy:
    """Each request meets the next of the faults; the requests after them pass."""

    url: str = ""
    faults: deque[Fault | None] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)

    def keys(self) -> set[str]:
        """The idempotency keys that came."""
        return {seen.headers["Idempotency-Key"] for seen in self.seen if "Idempotency-Key" in seen.headers}


class _Handler(BaseHTTPRequestHandler):
    """One request to a connection."""

    def __init__(self, proxy: Proxy, upstream: str, *arguments: object) -> None:
        self.proxy, self.upstream = proxy, upstream
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.seen.append(Seen(f"{self.command} {self.path}", dict(self.headers)))
        fault = self.proxy.faults.popleft() if self.proxy.faults else None
        (fault or passing)(self, body)

    do_POST = do_DELETE = do_GET  # noqa: N815

    def ask(self, body: bytes) -> httpx.Response:
        """What the server answers."""
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        return http.request(self.command, f"{self.upstream}{self.path}", headers=headers, content=body, timeout=60)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


Fault: TypeAlias = Callable[[_Handler, bytes], None]


def passing(handler: _Handler, body: bytes) -> None:
    """Nothing goes wrong."""
    answer = handler.ask(body)
    handler.answer(answer.status_code, answer.headers, answer.content)


def lost(handler: _Handler, body: bytes) -> None:
    """The server did as it was asked, and nobody hears of it."""
    handler.ask(body)


def cut(handler: _Handler, body: bytes) -> None:
    """Half of the answer arrives."""
    answer = handler.ask(body)
    handler.answer(answer.status_code, answer.headers, answer.content[: len(answer.content) // 2])


def says(status: int, body: bytes = b"", **headers: str) -> Fault:
    """The request is answered on the way."""
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Length": str(len(body))}
    return lambda handler, _body: handler.answer(status, named, body)


@contextmanager
def flaky(upstream: str) -> Iterator[Proxy]:
    """A proxy of that server."""
    proxy = Proxy()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, proxy, upstream)) as server:
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield proxy
        server.shutdown()
        thread.join()
