"""Requests to URLs that clients name: receivers of webhooks, files to fetch, and places for results.

Such a URL must not lead into the network of the server. A name is resolved once for each connection, every address is
checked, and the connection is made to an address that was checked. Redirects are not followed, but by `fetch`, which
checks each again. There are no cookies or connections that outlive a request, and bodies are not decompressed.

With a proxy, which resolves names itself and has to refuse what they must not lead to, connections are tunnels through
it (HTTP CONNECT). Addresses in URLs are checked here as without it.
"""

import asyncio
import logging
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import httpcore
import httpx

from config.settings import Settings
from web.services.webhooks.public_addresses import Address, AddressRules, Refusal, parse_literal

log = logging.getLogger("convertd.outgoing")

Reason: TypeAlias = Literal[
    "invalid_url",
    "forbidden_address",
    "forbidden_port",
    "unreachable",
    "timeout",
    "too_many_redirects",
    "http_status",
    "content_encoding",
    "too_large",
]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host for a port. Raises OSError or UnicodeError."""

MAX_URL = 8192  # characters
MAX_REDIRECTS = 3
_TIMEOUTS = {"timeout": {"connect": 5.0}}  # seconds for each address
_RESOLVERS = 256  # threads; a name server can keep one waiting for half a minute
_MAX_HEAD = 32 << 10  # bytes before the body, with informational responses; each of those takes 0.1 ms to parse
_AT_A_TIME = 4096  # bytes of them that are parsed before other requests go on
_MIN_PARTS = 10_000  # parts of a body, beyond which they have as many bytes on average
_MIN_PART = 64
_PARTS_AT_A_TIME = 100
_REDIRECTS = (301, 302, 303, 307, 308)
_HOST = re.compile(r"[0-9a-z_.-]+|[0-9a-f:.]+")  # a name in ASCII, or an address
_PORTS = range(1, 1 << 16)
_Tunnel: TypeAlias = Callable[[str, int], Awaitable[httpcore.AsyncNetworkStream]]
_REFUSALS: Mapping[Refusal, str] = {
    "forbidden_address": "The URL does not lead to a public address.",
    "forbidden_port": "The URL has a port that is not allowed.",
}


class OutgoingError(Exception):
    """The request was not made, or got no complete response. `str(error)` is a sentence for the client.

    `status` is the one of the response if that is the reason.
    """

    def __init__(self, reason: Reason, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.status = status


@dataclass(frozen=True)
class Response:
    """A response. `body` yields its bytes as they were sent; a body that ends early raises OutgoingError."""

    url: httpx.URL
    status: int
    headers: httpx.Headers
    body: AsyncIterator[bytes]


class Outgoing:
    """Makes the requests. `rules` are where they may lead.

    `resolve` finds the addresses of names, by default as the system does. `tls` has the trusted authorities, by default
    the system's. `proxy` is the URL of an HTTP proxy, which may have a name and a password.
    """

    def __init__(
        self,
        rules: AddressRules | None = None,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        self._rules = rules or AddressRules()
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolver")
        self._resolve_name = resolve or self._resolve
        self._tls = tls
        self._connect_by_proxy = None if proxy is None else partial(self._tunnel, httpx.URL(proxy))

    @cached_property
    def _agent(self) -> str:
        return f"convertd/{version('convertd')}"

    @cached_property
    def _authorities(self) -> ssl.SSLContext:
        return self._tls or ssl.create_default_context()  # takes 20 ms, which a server without requests saves

    def close(self) -> None:
        """Ends the threads that resolve names, without waiting for them."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def check_url(self, url: str) -> httpx.URL:
        """Returns the parsed URL. Raises OutgoingError: `invalid_url`, `forbidden_address` or `forbidden_port`.

        Resolves no names: those are checked by each request, and so are their ports if there are allowed networks.
        """
        if len(url) > MAX_URL:
            raise OutgoingError("invalid_url", f"The URL has more than {MAX_URL} characters.")
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            _check(self._rules, parse_literal(_host(url)), None)
            raise OutgoingError("invalid_url", "The URL is malformed.") from None
        if parsed.scheme not in ("http", "https"):
            raise OutgoingError("invalid_url", "The URL must begin with http:// or https://.")
        if parsed.userinfo:
            raise OutgoingError("invalid_url", "The URL must not contain a user name or password.")
        host = parsed.raw_host.decode()
        port = parsed.port
        if not _HOST.fullmatch(host) or (port is not None and port not in _PORTS):
            raise OutgoingError("invalid_url", "The URL needs a valid host.")
        address = parse_literal(host)
        if address is not None or not self._rules.allowed:
            _check(self._rules, address, port or (443 if parsed.scheme == "https" else 80))
        return parsed

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str | httpx.URL,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[Response]:
        """Sends one request, and yields its response, whatever its status. Redirects are not followed.

        Everything, the block included, must end within `seconds`. An iterable `content` needs a Content-Length among
        the `headers`, or is sent in chunks. Raises OutgoingError.
        """
        parsed = self.check_url(str(url))
        place = {"scheme": parsed.raw_scheme, "host": parsed.raw_host, "target": parsed.raw_path}
        address = httpcore.URL(**place, port=parsed.port)
        sent = httpx.Headers({"User-Agent": self._agent, "Accept-Encoding": "identity"})
        sent.update(headers)
        sent.update({"Host": parsed.netloc.decode(), "Connection": "close"})
        backend = _CheckedBackend(self._rules, self._resolve_name, self._connect_by_proxy)
        connection = httpcore.AsyncHTTPConnection(
            address.origin, ssl_context=self._authorities, network_backend=backend
        )
        async with _reported(seconds), connection:
            stream = connection.stream(method, address, headers=sent.raw, content=content, extensions=_TIMEOUTS)
            async with stream as response:
                backend.head.is_complete = True
                body = _in_large_parts(response.aiter_stream())
                yield Response(parsed, response.status, httpx.Headers(response.headers), body)

    @asynccontextmanager
    async def fetch(
        self,
        url: str,
        *,
        seconds: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        any_status: bool = False,
    ) -> AsyncIterator[Response]:
        """Gets a file, and yields a response with a status of 200-299, or `any_status`. Follows three redirects.

        Everything, the block included, must end within `seconds`. The `headers` are sent to the first host only. Raises
        OutgoingError, also if the body turns out to be longer than `max_bytes`, or is compressed.
        """
        ends = asyncio.get_running_loop().time() + seconds
        current = self.check_url(url)
        first = _origin(current)
        for _ in range(MAX_REDIRECTS + 1):
            left = ends - asyncio.get_running_loop().time()
            own = headers if _origin(current) == first else None
            async with self.request("GET", current, seconds=left, headers=own) as response:
                if response.status not in _REDIRECTS:
                    yield _checked(response, max_bytes, any_status=any_status)
                    return
                current = self._target(current, response.headers.get("location", ""))
        raise OutgoingError("too_many_redirects", f"The URL redirects more than {MAX_REDIRECTS} times.")

    def _target(self, current: httpx.URL, location: str) -> httpx.URL:
        try:
            target = urljoin(str(current), location)
        except ValueError:
            raise OutgoingError("invalid_url", "The URL redirects to a malformed one.") from None
        return self.check_url(target)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        # In threads of their own: others wait for files, and must not wait for a name server of a client's choice.
        resolving = asyncio.get_running_loop().run_in_executor(
            self._resolvers, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(found[4][0]) for found in await resolving]

    async def _tunnel(self, proxy: httpx.URL, host: str, port: int) -> httpcore.AsyncNetworkStream:
        """Connects to a host by a proxy. Raises OutgoingError and errors of httpcore."""
        address = httpcore.URL(scheme=proxy.raw_scheme, host=proxy.raw_host, port=proxy.port, target=f"{host}:{port}")
        headers = httpx.Headers({"Host": f"{host}:{port}", "User-Agent": self._agent})
        if proxy.userinfo:
            headers["Proxy-Authorization"] = f"Basic {b64encode(unquote_to_bytes(proxy.userinfo)).decode()}"
        connection = httpcore.AsyncHTTPConnection(address.origin, ssl_context=self._authorities)
        request = httpcore.Request("CONNECT", address, headers=headers.raw, extensions=_TIMEOUTS)
        try:
            response = await connection.handle_async_request(request)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            log.warning("the egress proxy cannot be reached: %s", error, extra={"outage": True})
            raise
        if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            return cast(httpcore.AsyncNetworkStream, response.extensions["network_stream"])
        await connection.aclose()
        if response.status in (HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):  # as smokescreen
            log.warning("the egress proxy refuses connections: %d", response.status, extra={"outage": True})
            raise OutgoingError("forbidden_address", _REFUSALS["forbidden_address"])
        raise httpcore.ConnectError("The proxy cannot reach the host.")


def open_outgoing(settings: Settings) -> Outgoing:
    """Returns what makes requests by the rules of the settings."""
    rules = AddressRules(settings.url_allow, settings.url_deny + settings.public_addresses, settings.url_ports)
    proxy = settings.egress_proxy
    return Outgoing(rules, proxy=None if proxy is None else proxy.get_secret_value())


@dataclass
class _Head:
    """What precedes the body of a response: its size in bytes so far, and whether it is complete."""

    size: int = 0
    is_complete: bool = False


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that reads the head of a response in small parts, and no more than _MAX_HEAD bytes of it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, head: _Head) -> None:
        self._stream = stream
        self._head = head

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109, of the protocol
        if self._head.is_complete:
            return await self._stream.read(max_bytes, timeout)
        data = await self._stream.read(min(max_bytes, _AT_A_TIME), timeout)
        self._head.size += len(data)
        if self._head.size > _MAX_HEAD:
            raise httpcore.RemoteProtocolError("The response has too many or too large headers.")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109, of the protocol
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(*args, **kwargs), self._head)


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Makes the connection of a request to an address that was checked, and to no name; or by the tunnel of a proxy.

    `head` is of the response.
    """

    def __init__(self, rules: AddressRules, resolve: Resolve, tunnel: _Tunnel | None) -> None:
        self.head = _Head()
        self._rules = rules
        self._resolve = resolve
        self._tunnel = tunnel
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109, of the protocol
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        literal = parse_literal(host)
        if self._tunnel is not None:
            _check(self._rules, literal, port)
            name = str(literal or host)  # an address in the one form that everybody reads in the same way
            return _Stream(await self._tunnel(f"[{name}]" if ":" in name else name, port), self.head)
        try:
            found = [literal] if literal is not None else map(ip_address, await self._resolve(host, port))
            addresses = list(dict.fromkeys(found))
        except (OSError, ValueError):  # UnicodeError is a ValueError
            raise httpcore.ConnectError("The host name cannot be resolved.") from None
        for address in addresses:
            _check(self._rules, address, port)
        error: Exception = httpcore.ConnectError("The host name has no address.")
        for address in addresses:
            try:
                stream = await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
                return _Stream(stream, self.head)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failure:
                error = failure
        raise error


def _checked(response: Response, max_bytes: int, *, any_status: bool) -> Response:
    """Returns a response whose body raises OutgoingError if it is too long. Raises it if the response is no file."""
    if not (200 <= response.status < 300 or any_status):
        message = f"The URL responds with the status {response.status}."
        raise OutgoingError("http_status", message, response.status)
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise OutgoingError("content_encoding", "The URL responds with compressed data, which was not asked for.")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    return Response(response.url, response.status, response.headers, _limited(response.body, max_bytes))


async def _in_large_parts(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lets others go on between parts, and raises ProtocolError if those of a long body have a few bytes each."""
    size = 0
    count = 0
    async for part in body:
        size += len(part)
        count += 1
        if count > _MIN_PARTS + size // _MIN_PART:
            raise httpcore.RemoteProtocolError("The response has too many parts.")
        if count % _PARTS_AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield part


async def _limited(body: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for part in body:
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield part


def _origin(url: httpx.URL) -> tuple[bytes, bytes]:
    return url.raw_scheme, url.netloc


def _host(url: str) -> str:
    """Returns the host of a URL that is malformed otherwise, or an empty text."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _check(rules: AddressRules, address: Address | None, port: int | None) -> None:
    refusal = rules.refusal(address, port)
    if refusal is not None:
        raise OutgoingError(refusal, _REFUSALS[refusal])


def _too_large(max_bytes: int) -> OutgoingError:
    return OutgoingError("too_large", f"The file at the URL is larger than {max_bytes} bytes.")


@asynccontextmanager
async def _reported(seconds: float) -> AsyncIterator[None]:
    """Limits the time of the block, and raises what goes wrong with its connection as OutgoingError."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except (TimeoutError, httpcore.TimeoutException) as error:
        if isinstance(error, TimeoutError) and not deadline.expired():
            raise
        raise OutgoingError("timeout", "The URL does not respond in time.") from None
    except (httpcore.NetworkError, httpcore.ProtocolError):
        raise OutgoingError("unreachable", "The URL cannot be reached, or its response is incomplete.") from None
