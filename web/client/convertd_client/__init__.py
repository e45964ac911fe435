"""Python client of the convertd API, synchronous and asynchronous. The distribution's README.md has examples.

Requests that may succeed later are retried with exponential backoff: after a lost connection, a full queue or a crash.
All attempts share one idempotency key, so a call is charged once. Files are streamed from and to disk.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from convertd_client.calls import Calls
from convertd_client.calls import Download as Download
from convertd_client.calls import FileResult as FileResult
from convertd_client.calls import Result as Result
from convertd_client.schema import *  # noqa: F403, the errors and models of the API
from convertd_client.transport import ConnectionFailed as ConnectionFailed
from convertd_client.transport import ConvertdError as ConvertdError
from convertd_client.transport import Transport
from convertd_client.transport import UnexpectedAnswer as UnexpectedAnswer
from convertd_client.webhooks import InvalidWebhook as InvalidWebhook
from convertd_client.webhooks import WebhookMessage as WebhookMessage
from convertd_client.webhooks import verify_webhook as verify_webhook

P = ParamSpec("P")
T = TypeVar("T")


class _Connection:
    """Base of both clients. URL and API key are arguments or come from CONVERTD_URL and CONVERTD_API_KEY.

    All times are in seconds. `timeout` limits the time without data from the server. `backoff` is the delay before the
    first retry; it doubles with each retry. `max_retry_wait` limits the total delay between the attempts of a request.
    `http_transport` replaces httpx's own, for proxies and certificates.
    """

    _http_type: ClassVar[type[httpx.Client | httpx.AsyncClient]]

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 300.0,
        retries: int = 4,
        backoff: float = 0.5,
        max_retry_wait: float = 180.0,
        http_transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = _base_url(base_url or os.environ.get("CONVERTD_URL") or "http://localhost:8000")
        http = self._http_type(
            base_url=self.base_url,
            headers=_authorization((api_key or os.environ.get("CONVERTD_API_KEY") or "").strip()),
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            transport=cast(Any, http_transport),
        )
        self._api = Transport(http, retries=retries, backoff=backoff, max_retry_wait=max_retry_wait)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"


class AsyncClient(_Connection, Calls):
    """Asynchronous client for asyncio."""

    _http_type = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError  # unreachable: the transport blocks instead of suspending


def _iterate(results: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yields the items of a generator that never suspends."""
    try:
        while True:
            yield _run(anext(results))
    except StopAsyncIteration:
        return
    finally:
        _run(results.aclose())


def _blocking(call: Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(call(Calls(self._api), *args, **kwargs))

    return method


def _iterating(
    call: Callable[Concatenate[Calls, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _iterate(call(Calls(self._api), *args, **kwargs))

    return method


class Client(_Connection):
    """Synchronous client, thread-safe. It has the methods of AsyncClient."""

    _http_type = httpx.Client

    convert = _blocking(Calls.convert)
    inspect = _blocking(Calls.inspect)
    tool = _blocking(Calls.tool)
    merge_pdfs = _blocking(Calls.merge_pdfs)
    delete_pages = _blocking(Calls.delete_pages)
    upload = _blocking(Calls.upload)
    file = _blocking(Calls.file)
    files = _blocking(Calls.files)
    convert_file = _blocking(Calls.convert_file)
    download = _blocking(Calls.download)
    download_files = _blocking(Calls.download_files)
    put_preset = _blocking(Calls.put_preset)
    preset = _blocking(Calls.preset)
    presets = _blocking(Calls.presets)
    delete_preset = _blocking(Calls.delete_preset)
    link = _blocking(Calls.link)
    delete_file = _blocking(Calls.delete_file)
    create_batch = _blocking(Calls.create_batch)
    add_to_batch = _blocking(Calls.add_to_batch)
    convert_batch = _blocking(Calls.convert_batch)
    batch = _blocking(Calls.batch)
    download_batch = _blocking(Calls.download_batch)
    convert_many = _iterating(Calls.convert_many)
    submit = _blocking(Calls.submit)
    submit_tool = _blocking(Calls.submit_tool)
    submit_batch = _blocking(Calls.submit_batch)
    job = _blocking(Calls.job)
    wait = _blocking(Calls.wait)
    jobs = _blocking(Calls.jobs)
    end_job = _blocking(Calls.end_job)
    formats = _blocking(Calls.formats)
    conversion = _blocking(Calls.conversion)
    tools = _blocking(Calls.tools)
    account = _blocking(Calls.account)
    usage = _blocking(Calls.usage)
    keys = _blocking(Calls.keys)
    create_key = _blocking(Calls.create_key)
    rotate_key = _blocking(Calls.rotate_key)
    revoke_key = _blocking(Calls.revoke_key)
    purchase = _blocking(Calls.purchase)
    register = _blocking(Calls.register)
    verify = _blocking(Calls.verify)
    close = _blocking(Calls.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _base_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The address of the service must be a URL like https://host.")
    return url.rstrip("/").removesuffix("/api/v1") + "/api/v1"


def _authorization(key: str) -> dict[str, str]:
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("The API key contains invalid characters.")
    return {"Authorization": f"Bearer {key}"} if key else {}
