"""Requests of a task to the network, which its process cannot reach: the executor makes them, by its own rules.

A task that may make requests has a socket. Each message on it is a line of JSON.
"""

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import Base64UrlBytes, TypeAdapter

MAX_REQUESTS = 1000
"""Requests of one task, whose connection is closed after the response to the last one."""

MAX_BYTES = 128 << 20
"""Bytes of all responses to one task."""

MAX_SENT = 1 << 20
"""Bytes of the body of a request."""

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values."""

_END = b"\n"


@dataclass(frozen=True)
class WebRequest:
    """A request to a server on the network. `number` is repeated in its response."""

    number: int
    method: str
    url: str
    headers: Headers = ()
    body: Base64UrlBytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class WebResponse:
    """The response to the request of this number; `failure` says in a word why there is none."""

    number: int
    status: int = 0
    headers: Headers = ()
    body: Base64UrlBytes = field(default=b"", repr=False)
    failure: str = ""


@dataclass(frozen=True)
class FetchedPage:
    """Where the input of a task was fetched from, and how the server responded.

    `sent` are headers that the client wants requests to the host of the `url` to have.
    """

    url: str
    status: int
    headers: Headers = ()
    sent: Headers = field(default=(), repr=False)


Fetch: TypeAlias = Callable[[WebRequest, int, float], Awaitable[WebResponse]]
"""Makes a request, whose response may have so many bytes and take so many seconds. Raises nothing."""


class MessageReader:
    """Reads messages that end with a byte from a descriptor."""

    def __init__(self, descriptor: int, end: bytes) -> None:
        self._descriptor = descriptor
        self._end = end
        self._parts: list[bytes] = []

    def read(self) -> list[bytes]:
        """Reads once, and returns the messages that are complete then. Raises OSError, also at the end."""
        data = os.read(self._descriptor, 1 << 20)
        if not data:
            raise ConnectionResetError
        self._parts.append(data)
        if self._end not in data:
            return []
        *messages, rest = b"".join(self._parts).split(self._end)
        self._parts = [rest]
        return messages


class Network:
    """The side of the task. `page` is where its input comes from, if it was fetched."""

    def __init__(self, connection: int, page: FetchedPage | None = None) -> None:
        self.page = page
        self._connection = connection
        self._reader = MessageReader(connection, _END)
        self._responses = TypeAdapter(WebResponse)

    def fileno(self) -> int:
        """The descriptor that is readable when a response arrives."""
        return self._connection

    def send(self, request: WebRequest) -> None:
        """Sends a request, whose body must not be longer than MAX_SENT."""
        view = memoryview(encode(request))
        while view:
            view = view[os.write(self._connection, view) :]

    def receive(self) -> list[WebResponse]:
        """Reads once, and returns the responses that are complete then. Raises OSError if the executor has ended."""
        return [self._responses.validate_json(line) for line in self._reader.read()]

    def exchange(self, request: WebRequest) -> WebResponse:
        """Sends the only request that waits for its response, and returns that. Raises OSError as `receive` does."""
        self.send(request)
        while not (responses := self.receive()):
            pass
        return responses[0]

    def close(self) -> None:
        os.close(self._connection)


def encode(message: WebRequest | WebResponse) -> bytes:
    """The line for a request or a response."""
    values = vars(message) | {"body": urlsafe_b64encode(message.body).decode()}
    return json.dumps(values).encode() + _END


def only_to(urls: Collection[str], fetch: Fetch) -> Fetch:
    """A function that makes requests to these URLs as `fetch` does, and refuses others."""

    async def fetch_known(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        if request.url not in urls:
            return WebResponse(request.number, failure="forbidden_address")
        return await fetch(request, max_bytes, seconds)

    return fetch_known


def same_origin(first: str, second: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return first.split("/", 3)[:3] == second.split("/", 3)[:3]
