"""Clients of a cluster: each account converts pictures of its own color, retries, and checks every result."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from io import BytesIO
from time import monotonic
from typing import Any, TypeAlias

import httpx
from PIL import Image, ImageChops

from convertd_client import AsyncClient, ConvertdError

COLORS = ((200, 60, 60), (60, 190, 70), (70, 80, 200), (190, 190, 70))

_SIZES = ((64, 48), (400, 300), (900, 700), (1600, 1200))  # in pixels; the largest have more than 1 MiB
_LARGEST = _SIZES[-1]
_CONVERSIONS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("jpeg", {}),
    ("webp", {"quality": 60, "width": 48}),
    ("png", {"width": 300}),
    ("bmp", {}),
    ("tiff", {}),
    ("jpeg", {"max_bytes": 400_000}),
)
_NOISE = 6.0  # standard deviation of the pictures' noise
_TOLERANCE = 12  # of the mean color of a result
_STORED_SHARE = 0.25  # of the conversions, of files that are uploaded first
_TIMEOUT = 120.0  # seconds without data
_MAX_RETRIES, _MAX_RETRY_WAIT = 10_000, 600.0  # seconds
_UPLOAD_DELAY = 1.0  # seconds

Color: TypeAlias = tuple[int, int, int]


@dataclass
class Outcomes:
    """The outcomes of all requests. `keys` and `succeeded` are idempotency keys; `errors` are counted by kind."""

    keys: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    wrong_results: int = 0
    through_other_server: int = 0
    seconds: list[float] = field(default_factory=list)


class _Transport(httpx.AsyncHTTPTransport):
    """Records the outcome of each attempt."""

    def __init__(self, outcomes: Outcomes, trust: ssl.SSLContext) -> None:
        super().__init__(verify=trust)
        self._outcomes = outcomes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get("Idempotency-Key")
        self._outcomes.keys |= {key} - {None}
        try:
            response = await super().handle_async_request(request)
            if response.is_error:
                self._outcomes.errors[_kind(response.status_code, await response.aread())] += 1
        except httpx.TransportError as error:
            self._outcomes.errors[type(error).__name__] += 1
            raise
        if response.status_code == httpx.codes.OK:
            self._outcomes.succeeded |= {key} - {None}
        return response


def _client(url: str, key: str, outcomes: Outcomes, trust: ssl.SSLContext) -> AsyncClient:
    """A client of the API, with a transport that records outcomes."""
    transport = _Transport(outcomes, trust)
    return AsyncClient(
        url, key, timeout=_TIMEOUT, retries=_MAX_RETRIES, max_retry_wait=_MAX_RETRY_WAIT, http_transport=transport
    )


class AccountClients:
    """Concurrent clients of one account: of the service at `url`, and of each of its `servers`."""

    def __init__(
        self, key: str, color: Color, url: str, servers: Sequence[str], trust: ssl.SSLContext, outcomes: Outcomes
    ) -> None:
        self._color = color
        self._service = _client(url, key, outcomes, trust)
        self._servers = [_client(server, key, outcomes, trust) for server in servers]
        self._outcomes = outcomes
        self._pictures = {size: _picture(size, color) for size in _SIZES}

    async def convert_until(self, end: float, concurrency: int) -> None:
        """Converts until `end` of the monotonic clock, and until the last conversions have succeeded."""
        async with AsyncExitStack() as stack:
            for client in (self._service, *self._servers):
                await stack.enter_async_context(client)
            await asyncio.gather(*(self._convert_until(end, random.Random(number)) for number in range(concurrency)))

    async def _convert_until(self, end: float, choices: random.Random) -> None:
        while monotonic() < end:
            size, (target, options) = choices.choice(_SIZES), choices.choice(_CONVERSIONS)
            convert = self._convert_stored if choices.random() < _STORED_SHARE else self._convert
            try:
                await convert(size, target, options, choices)
            except ConvertdError as error:
                self._outcomes.failures[f"{error.status} {error.reason or error.code}"] += 1

    async def _convert(
        self, size: tuple[int, int], target: str, options: Mapping[str, Any], _choices: random.Random
    ) -> None:
        started = monotonic()
        converted = await self._service.convert(self._pictures[size], target, name="a.png", **options)
        self._outcomes.seconds.append(monotonic() - started)
        await self._check(converted.content, size, options)

    async def _convert_stored(
        self, size: tuple[int, int], target: str, options: Mapping[str, Any], choices: random.Random
    ) -> None:
        """Uploads a file to one server and converts it through another."""
        first, second = choices.sample(self._servers, 2)
        file_id = await self._upload(first, self._pictures[size])
        started = monotonic()
        converted = await second.convert_file(file_id, target, **options)
        self._outcomes.seconds.append(monotonic() - started)
        download = await second.download(converted.file_id)
        await self._check(download.content, size, options)
        self._outcomes.through_other_server += 1

    async def _upload(self, client: AsyncClient, content: bytes) -> str:
        """Uploads until it succeeds: uploads have no idempotency key, so that the client does not repeat all."""
        while True:
            try:
                return (await client.upload(content, name="a.png")).file_id
            except ConvertdError as error:
                if error.status and not error.retryable:
                    raise
                await asyncio.sleep(_UPLOAD_DELAY)

    async def _check(self, content: bytes, size: tuple[int, int], options: Mapping[str, Any]) -> None:
        is_right = await asyncio.to_thread(_is_picture, content, size, options.get("width"), self._color)
        self._outcomes.wrong_results += not is_right


def _kind(status: int, body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return str(status)
    return f"{status} {error.get('reason') or error['code']}"


def _picture(size: tuple[int, int], color: Color) -> bytes:
    """Returns a PNG of one color with noise."""
    file, noise = BytesIO(), Image.effect_noise(size, _NOISE)
    picture = ImageChops.add(Image.new("RGB", size, color), Image.merge("RGB", (noise,) * 3), offset=-128)
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _is_picture(content: bytes, size: tuple[int, int], width: int | None, color: Color) -> bool:
    """Whether the content is a picture of that color, and of that size or with that width."""
    with Image.open(BytesIO(content)) as image:
        mean = image.convert("RGB").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        expected = size[0] if width is None else min(size[0], width)
        assert isinstance(mean, tuple)
        near = all(abs(actual - wanted) <= _TOLERANCE for actual, wanted in zip(mean, color, strict=True))
        return near and image.width == expected
