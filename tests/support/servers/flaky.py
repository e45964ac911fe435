"""A proxy between a client and a server that injects faults into requests."""

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

from tests.support.requests import http


@dataclass(frozen=True)
class Seen:
    """A request that the proxy received."""

    line: str
    headers: Mapping[str, str]


@dataclass
class Proxy:
    """Applies one fault to each request, in order. Later requests pass."""

    url: str = ""
    faults: deque[Fault | None] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)

    def keys(self) -> set[str]:
        """The idempotency keys of the received requests."""
        return {seen.headers["Idempotency-Key"] for seen in self.seen if "Idempotency-Key" in seen.headers}


class _Handler(BaseHTTPRequestHandler):
    """One request per connection."""

    def __init__(self, proxy: Proxy, upstream: str, *arguments: object) -> None:
        self.proxy, self.upstream = proxy, upstream
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.seen.append(Seen(f"{self.command} {self.path}", dict(self.headers)))
        fault = self.proxy.faults.popleft() if self.proxy.faults else None
        (fault or passing)(self, body)

    do_POST = do_DELETE = do_GET  # noqa: N815

    def forward(self, body: bytes) -> httpx.Response:
        """Forwards the request to the server and returns its response."""
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        headers["Accept-Encoding"] = "identity"  # httpx would decode the body
        return http.request(self.command, f"{self.upstream}{self.path}", headers=headers, content=body, timeout=60)

    def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppresses the log."""


Fault: TypeAlias = Callable[[_Handler, bytes], None]


def passing(handler: _Handler, body: bytes) -> None:
    """Forwards the request and the response."""
    response = handler.forward(body)
    handler.respond(response.status_code, response.headers, response.content)


def lost(handler: _Handler, body: bytes) -> None:
    """Forwards the request, and drops the response."""
    handler.forward(body)


def cut(handler: _Handler, body: bytes) -> None:
    """Forwards the request, and half of the response."""
    response = handler.forward(body)
    handler.respond(response.status_code, response.headers, response.content[: len(response.content) // 2])


def responding(status: int, body: bytes = b"", **headers: str) -> Fault:
    """The proxy itself sends this response, without forwarding the request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Length": str(len(body))}
    return lambda handler, _body: handler.respond(status, named, body)


@contextmanager
def flaky(upstream: str) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    proxy = Proxy()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, proxy, upstream)) as server:
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield proxy
        server.shutdown()
        thread.join()
