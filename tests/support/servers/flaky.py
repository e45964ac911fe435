"""A proxy between a client and a server that injects faults into requests."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import httpx

from tests.support.requests import http
from tests.support.servers.receiver import Received, Receiver, Send, reply


class Proxy(Receiver):
    """Applies one fault to each request, in order. Later requests pass."""

    def __init__(self, upstream: str) -> None:
        super().__init__(self._apply)
        self.faults: deque[Fault] = deque()
        self._upstream = upstream

    def keys(self) -> set[str]:
        """The idempotency keys of the received requests."""
        return {seen.headers["idempotency-key"] for seen in self.requests if "idempotency-key" in seen.headers}

    def forward(self, request: Received) -> httpx.Response:
        """Forwards the request to the server and returns its response."""
        headers = {name: value for name, value in request.headers.items() if name != "connection"}
        headers["accept-encoding"] = "identity"  # httpx would decode the body
        url = f"{self._upstream}{request.path}"
        return http.request(request.method, url, headers=headers, content=request.body, timeout=60)

    def _apply(self, request: Received, send: Send) -> None:
        fault = self.faults.popleft() if self.faults else passing
        fault(self, request, send)


Fault: TypeAlias = Callable[[Proxy, Received, Send], object]


def passing(proxy: Proxy, request: Received, send: Send, share: int = 1) -> None:
    """Forwards the request and the response."""
    response = proxy.forward(request)
    headers = {name.replace("-", "_"): value for name, value in response.headers.items()}
    body = response.content[: len(response.content) // share]
    reply(response.status_code, body, **headers | {"connection": "close"})(request, send)


def lost(proxy: Proxy, request: Received, send: Send) -> None:
    """Forwards the request, and drops the response."""
    proxy.forward(request)


def cut(proxy: Proxy, request: Received, send: Send) -> None:
    """Forwards the request, and half of the response."""
    passing(proxy, request, send, share=2)


def responding(status: int, body: bytes = b"", **headers: str) -> Fault:
    """The proxy itself sends this response, without forwarding the request."""
    return lambda proxy, request, send: reply(status, body, **headers)(request, send)
