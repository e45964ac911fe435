"""A few clients that occupy the connections, or the space for uploads and results, beside others."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from benchmarks.processes import ConvertdServer
from config.pricing import MIB
from tests.support.samples.forms import FORM, TARGET, form, part
from tests.support.samples.generated import saved
from tests.support.servers.in_process import eventually
from tests.support.servers.load import assert_no_work_files, charged, create_accounts, image, sqlite_url
from tests.support.servers.proxies import NginxServer

pytestmark = pytest.mark.long

_ADDRESSES, _CONNECTIONS_PER_ADDRESS = 8, 64  # together as many as a server accepts
_BLOCK = 3000  # bytes that slow clients send or read at a time
_READ_RATE, _SEND_RATE = 30_000, 17_000  # bytes per second
_READERS_PER_ACCOUNT, _SENDERS_PER_ACCOUNT = 4, 6
_START_TIMEOUT = 300  # seconds in which all readers have a result
_SIDE = 9458  # pixels: a BMP has 268 MB, and eight of them have as much as a server has space for
_BODY, _AT_ONCE = 190 * MIB, 85  # the size of each body; MiB of each of its first two files, sent without a pause


@pytest.mark.parametrize("path", ["/api/v1/register", "/api/v1/convert", "/api/v1/convert with a key"])
def test_half_sent_bodies_do_not_keep_others_out(tmp_path: Path, seconds: float, path: str) -> None:
    """From 8 addresses, 64 connections each send one byte of a body, again and again: without a key or with one.

    Every request of other clients succeeds.
    """
    keys = create_accounts(sqlite_url(tmp_path), 2)
    with ConvertdServer(tmp_path) as server:
        attack = _half_bodies(server.port, _half_sent(path, keys[0]))
        statuses = asyncio.run(_beside(attack, _conversions(server.api, keys[1]), seconds))
        assert_no_work_files(server)
    assert {*statuses} == {200}
    assert charged(sqlite_url(tmp_path)) == statuses[200]


def test_half_sent_bodies_end_at_nginx(tmp_path: Path, seconds: float) -> None:
    """The same through nginx."""
    keys = create_accounts(sqlite_url(tmp_path), 2)
    with ConvertdServer(tmp_path, {"CONVERTD_TRUSTED_PROXIES": "127.0.0.1"}) as server:
        (tmp_path / "nginx").mkdir()
        with NginxServer(tmp_path / "nginx", server.port) as nginx:
            attack = _half_bodies(nginx.port, _half_sent("/api/v1/convert", keys[0]), nginx.trust)
            conversions = _conversions(f"{nginx.url}/api/v1", keys[1], nginx.trust)
            statuses = asyncio.run(_beside(attack, conversions, seconds))
    assert {*statuses} == {200}
    assert charged(sqlite_url(tmp_path)) == statuses[200]


def test_slow_readers_leave_space_for_others(tmp_path: Path, seconds: float) -> None:
    """Two accounts read 8 results of 268 MB at 30 KB/s. Every upload of others above 1 MiB is accepted."""
    content = part(saved(Image.new("RGB", (_SIDE, _SIDE)), "PNG"), 'name="file"; filename="a.png"')
    body = form(content, TARGET.replace(b"png", b"bmp"))
    *slow, key = create_accounts(sqlite_url(tmp_path), 3)
    reading: set[str] = set()
    with ConvertdServer(tmp_path) as server:
        requests = [_head("/api/v1/convert", len(body), one) + body for one in slow * _READERS_PER_ACCOUNT]
        attack = [_read_slowly(server.port, one, f"127.0.2.{number}", reading) for number, one in enumerate(requests)]
        others, begun = _uploads(server.api, key), partial(_have_begun, reading, len(attack))
        statuses = asyncio.run(_beside(attack, others, seconds, begun))
    assert {*statuses} == {200}


def test_slow_senders_leave_space_for_others(tmp_path: Path, seconds: float) -> None:
    """Two accounts send 12 merge bodies of 190 MiB, the end at 17 KB/s. Every upload of others is accepted."""
    *slow, key = create_accounts(sqlite_url(tmp_path), 3)
    with ConvertdServer(tmp_path) as server:
        attack = [
            _send_slowly(server.port, _head("/api/v1/pdf/merge", _BODY, one)) for one in slow * _SENDERS_PER_ACCOUNT
        ]
        statuses = asyncio.run(_beside(attack, _uploads(server.api, key), seconds))
    assert {*statuses} == {200}


def _head(path: str, length: int, key: str = "") -> bytes:
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    lines = f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {length}\r\n\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}{lines}".encode()


def _half_sent(path: str, key: str) -> bytes:
    path, _, authorized = path.partition(" ")
    return _head(path, 60_000, key if authorized else "") + b"-"


async def _beside(
    attack: list[Coroutine[Any, Any, None]],
    request: Callable[[], Awaitable[int]],
    seconds: float,
    begun: Callable[[], bool] = lambda: True,
) -> Counter[int]:
    """Sends requests during the attack, after it has lasted a while and has begun. Returns how many had each status."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in attack]
        await asyncio.sleep(seconds / 3)
        assert await asyncio.to_thread(eventually, begun, _START_TIMEOUT)
        deadline, statuses = asyncio.get_running_loop().time() + seconds, Counter[int]()
        while asyncio.get_running_loop().time() < deadline:
            statuses[await request()] += 1
            await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
    return statuses


def _conversions(api: str, key: str, trust: ssl.SSLContext | bool = False) -> Callable[[], Awaitable[int]]:
    """A conversion on a new connection."""
    return _posts(f"{api}/convert", key, trust, {"file": ("a.png", image((64, 48)))}, {"output_format": "webp"})


def _uploads(api: str, key: str) -> Callable[[], Awaitable[int]]:
    """An upload of 8 MB on a new connection."""
    return _posts(f"{api}/files/upload", key, False, {"file": ("a.png", image((64, 48)) + bytes(8 * MIB))}, {})


def _posts(
    url: str, key: str, trust: ssl.SSLContext | bool, files: dict[str, tuple[str, bytes]], data: dict[str, str]
) -> Callable[[], Awaitable[int]]:
    async def post() -> int:
        async with httpx.AsyncClient(timeout=60, verify=trust) as client:
            headers = {"Authorization": f"Bearer {key}"}
            return (await client.post(url, headers=headers, files=files, data=data)).status_code

    return post


Use = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _repeat(port: int, address: str, use: Use, trust: ssl.SSLContext | None = None) -> None:
    """Opens connections from this address, one after the other."""
    options: dict[str, Any] = {"ssl": trust, "server_hostname": "localhost"} if trust else {}
    while True:
        with suppress(OSError):
            source = (address, 0)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=source, limit=_BLOCK, **options
            )
            try:
                await use(reader, writer)
            finally:
                writer.transport.abort()  # sends what is unsent to nobody
        await asyncio.sleep(1)


async def _blocks(reader: asyncio.StreamReader, pause: float = 0) -> AsyncIterator[bytes]:
    while block := await reader.read(_BLOCK):
        yield block
        await asyncio.sleep(pause)


def _half_bodies(port: int, request: bytes, trust: ssl.SSLContext | None = None) -> list[Coroutine[Any, Any, None]]:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        async for _block in _blocks(reader):
            pass

    addresses = [f"127.0.4.{number % _ADDRESSES}" for number in range(_ADDRESSES * _CONNECTIONS_PER_ADDRESS)]
    return [_repeat(port, address, send, trust) for address in addresses]


def _have_begun(reading: set[str], number: int) -> bool:
    return len(reading) == number


async def _read_slowly(port: int, request: bytes, address: str, reading: set[str]) -> None:
    """Adds the address to `reading` when it receives a result."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        async for block in _blocks(reader, pause=_BLOCK / _READ_RATE):
            if block.startswith(b"HTTP/1.1 200 "):
                reading.add(address)

    await _repeat(port, address, read)


async def _send_slowly(port: int, head: bytes) -> None:
    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(2):
            writer.write(part(b"", 'name="files[]"; filename="a.pdf"')[:-2])
            for _ in range(_AT_ONCE):
                writer.write(bytes(MIB))
                await writer.drain()
            writer.write(b"\r\n")
        writer.write(part(b"", 'name="files[]"; filename="a.pdf"')[:-2])
        writer.write(bytes(MIB * 5 // 4))
        for _ in range(_BODY // _BLOCK):
            writer.write(bytes(_BLOCK))
            await writer.drain()
            await asyncio.sleep(_BLOCK / _SEND_RATE)

    await _repeat(port, "127.0.0.2", send)
