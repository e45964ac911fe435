"""Requests with retries, the parsing of responses, and the base of all errors."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, cast, get_args, get_type_hints

import httpx

from convertd_client.transfers import PartialDownload

T = TypeVar("T")

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_MAX_DELAY = 8.0  # seconds; a longer Retry-After of the server takes precedence


class ConvertdError(Exception):
    """Base class of all errors of the API; `str(error)` is a readable message.

    `status` is the HTTP status, 0 without a response. `reason` refines the code, `param` is the name of the invalid
    parameter, `retry_after` is in seconds. If the conversion succeeded but its download failed, `details["file_id"]`
    is the id of the result.
    """

    code = "unknown"

    def __init_subclass__(cls, *, code: str) -> None:
        cls.code = code

    def __init__(
        self, message: str, body: Mapping[str, Any] = _EMPTY, *, status: int = 0, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = str(body.get("code", self.code))
        self.reason: str | None = body.get("reason")
        self.param: str | None = body.get("param")
        self.details: dict[str, Any] = dict(body.get("details") or {})
        self.request_id: str | None = body.get("request_id")
        self.retryable = bool(body.get("retryable"))
        self.status = status
        self.retry_after = retry_after


class ConnectionFailed(ConvertdError, code="connection_failed"):
    """The server cannot be reached, or the connection was lost."""


class UnexpectedAnswer(ConvertdError, code="unexpected_answer"):
    """The response is not from convertd, but for example from a proxy."""


class Transport:
    """Sends requests, and retries those that may succeed later. All times are in seconds.

    With a blocking httpx client, the coroutines never suspend, so that they need no event loop.
    """

    def __init__(
        self, http: httpx.Client | httpx.AsyncClient, *, retries: int, backoff: float, max_retry_wait: float
    ) -> None:
        self._http = http
        self._retries = retries
        self._backoff = backoff
        self._max_retry_wait = max_retry_wait

    async def close(self) -> None:
        """Closes the connections."""
        if isinstance(self._http, httpx.Client):
            self._http.close()
        else:
            await self._http.aclose()

    async def call(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        member: str | Callable[[dict[str, Any]], Any] | None = None,
        **request: Any,
    ) -> T:
        """Sends a request. Returns `data` of the response, with `meta`, or a member of it. Raises ConvertdError.

        `member` is its name, or a function that makes it of the data. `request` are the other arguments of `send`.
        """
        response = await self.send(method, path, **request)
        body = _json(response)
        try:
            data = {**body.get("meta", {}), **body["data"]}
            return cast(T, _parse(kind, member(data) if callable(member) else data[member] if member else data))
        except (AttributeError, KeyError, TypeError):
            message = "The response does not match the convertd API."
            raise UnexpectedAnswer(message, status=response.status_code) from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool = False,
        download: PartialDownload | None = None,
        repeatable: bool = True,
        prefer: str | None = None,
        **body: Any,
    ) -> httpx.Response:
        """Sends a request. Returns the response. Raises ConvertdError if it fails and all retries do.

        If `idempotent`, all attempts have the same idempotency key. If not `repeatable`, the request is retried only if
        the server has not processed it. `prefer` is the header Prefer. `body` are arguments of httpx: json, data, files
        or params.
        """
        key = {"Idempotency-Key": secrets.token_urlsafe(24)} if idempotent else {}
        key |= {} if prefer is None else {"Prefer": prefer}
        total_delay = 0.0
        for attempt in count():
            headers = {"Accept": "application/json"} if download is None else download.headers()
            try:
                response = await self._attempt(download, method=method, url=path, headers={**headers, **key}, **body)
                if response.is_success:
                    return response
                error = _refusal(response, repeatable=repeatable)
            except httpx.TransportError as interruption:
                error = _interruption(interruption, repeatable=repeatable)
            delay = min(self._backoff * 2.0**attempt, _MAX_DELAY) * random.uniform(0.5, 1)
            running = error.code == "idempotency_conflict"
            if not running:  # its Retry-After is an upper bound, not a minimum
                delay = max(delay, error.retry_after or 0)
            total_delay += delay
            if not error.retryable or total_delay > self._max_retry_wait or (attempt >= self._retries and not running):
                raise error
            await self._sleep(delay)
        raise AssertionError  # unreachable: count() is infinite

    async def _sleep(self, seconds: float) -> None:
        if isinstance(self._http, httpx.Client):
            time.sleep(seconds)  # noqa: ASYNC251, blocks by design
        else:
            await asyncio.sleep(seconds)

    async def _attempt(self, download: PartialDownload | None, **request: Any) -> httpx.Response:
        """Sends a request once. Reads the response into the download if it succeeded, else into memory."""
        if isinstance(self._http, httpx.Client):
            with self._http.stream(**request) as response:
                if download is None or not response.is_success:
                    response.read()
                else:
                    download.start(response)
                    for block in response.iter_bytes():
                        download.write(block)
                return response
        async with self._http.stream(**request) as response:
            if download is None or not response.is_success:
                await response.aread()
            else:
                download.start(response)
                async for block in response.aiter_bytes():
                    download.write(block)
            return response


def _interruption(error: httpx.TransportError, *, repeatable: bool) -> ConvertdError:
    """Returns the error of an attempt without a response; `retryable` is set if another attempt is safe."""
    interrupted = isinstance(error, httpx.NetworkError | httpx.TimeoutException | httpx.RemoteProtocolError)
    not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    failed = ConnectionFailed(f"The connection failed: {error or type(error).__name__}.")
    failed.retryable = not_sent or (interrupted and repeatable)
    failed.__cause__ = error
    return failed


def _refusal(response: httpx.Response, *, repeatable: bool) -> ConvertdError:
    """Returns the error of a response; `retryable` is set if another attempt is safe and may succeed."""
    status = response.status_code
    after = response.headers.get("Retry-After", "")
    body = _json(response).get("error")
    if not isinstance(body, dict):
        message = f"The server returned status {status} with an unexpected body."
        body = {"code": UnexpectedAnswer.code, "message": message, "retryable": status in (502, 503, 504)}
    kind = next((kind for kind in ConvertdError.__subclasses__() if kind.code == body.get("code")), ConvertdError)
    retry_after = int(after) if after.isdecimal() else None
    error = kind(str(body.get("message")), body, status=status, retry_after=retry_after)
    error.retryable &= repeatable or error.code in ("rate_limit_exceeded", "not_ready")
    return error


def _json(response: httpx.Response) -> Mapping[str, Any]:
    """Returns the body, or an empty mapping if it is not a JSON object."""
    try:
        value = response.json()
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _parse(hint: Any, value: Any) -> Any:
    """Returns a JSON value as a dataclass or a tuple of them. A field that is null has its default.

    Ignores unknown fields, which newer servers may send.
    """
    inner = get_args(hint)
    if NoneType in inner:
        return _parse(inner[0], value)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        names = [declared.name for declared in fields(hint) if value.get(declared.name) is not None]
        return cast(Any, hint)(**{name: _parse(hints[name], value[name]) for name in names})
    return tuple(_parse(inner[0], item) for item in value) if inner and isinstance(value, list) else value
