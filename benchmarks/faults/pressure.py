"""Open-loop load from a process of its own: it asks at its own rate, whether or not the server keeps up.

Run with a Plan as JSON on standard input; prints the answers as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

_FIRST_ADDRESS = 2  # the clients come from 127.0.0.2 and so on
_BOUNDARY = "a3f1c2-boundary"
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True)
class Plan:
    """What to send: `rate` requests a second for `seconds`, each key in turn and from an address of its own.

    With `clients`, that many ask one request after the other instead, and the rate is what comes of it.
    """

    url: str
    keys: tuple[str, ...]
    file: str  # the path of what to convert
    seconds: float
    rate: float = 0.0
    clients: int = 0


@dataclass(frozen=True)
class Heard:
    """An answer; times in seconds of the machine's clock. Status 0 where none came."""

    status: int
    asked: float
    came: float
    retry_after: str = ""

    @property
    def seconds(self) -> float:
        return self.came - self.asked


async def carry_out(plan: Plan) -> list[Heard]:
    """The plan's answers, in a process of their own."""
    command = (sys.executable, "-m", __spec__.name)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await process.communicate(json.dumps(asdict(plan)).encode())
    return [Heard(*row) for row in json.loads(out)]


class _Client:
    """One address with one key, and its connections that may be used again."""

    def __init__(self, number: int, plan: Plan) -> None:
        parts = urlsplit(plan.url)
        self._to = (parts.hostname, parts.port)
        self._from = (f"127.0.0.{_FIRST_ADDRESS + number}", 0)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        body = _body(Path(plan.file).read_bytes())
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {plan.keys[number]}\r\n"
            f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._request = head.encode() + body

    async def ask(self) -> Heard:
        asked = monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                status, retry_after = await self._exchange()
        except (OSError, EOFError, TimeoutError):
            status, retry_after = 0, ""
        return Heard(status, asked, monotonic(), retry_after)

    async def _exchange(self) -> tuple[int, str]:
        connection = self._idle.pop() if self._idle else await self._connect()
        reader, writer = connection
        keep = False
        try:
            writer.write(self._request)
            line = await reader.readline()
            fields = _fields(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(int(fields["content-length"]))
            await writer.drain()  # before the next request, not before this one's answer
            keep = fields.get("connection") != "close"
            return int(line.split()[1]), fields.get("retry-after", "")
        finally:
            if keep:
                self._idle.append(connection)
            else:
                writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._to, local_addr=self._from)


def _fields(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode().splitlines())
    return {name.lower(): value.strip() for name, _, value in lines}


def _body(content: bytes) -> bytes:
    opening = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    field = f'{opening}"output_format"\r\n\r\nwebp\r\n'
    file = f'{opening}"file"; filename="a"\r\n\r\n'
    return f"{field}{file}".encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()


async def _at_rate(clients: Iterable[_Client], plan: Plan) -> list[Heard]:
    began, turns = monotonic(), cycle(clients)
    asked: list[asyncio.Task[Heard]] = []
    while (elapsed := monotonic() - began) < plan.seconds:
        due = int(elapsed * plan.rate) + 1 - len(asked)
        asked += [asyncio.create_task(client.ask()) for client in islice(turns, due)]
        await asyncio.sleep(max(0.0, began + len(asked) / plan.rate - monotonic()))
    return await asyncio.gather(*asked)


async def _in_turn(clients: Iterable[_Client], plan: Plan) -> list[Heard]:
    end = monotonic() + plan.seconds

    async def series(client: _Client) -> list[Heard]:
        answers = []
        while monotonic() < end:
            answers.append(await client.ask())
        return answers

    all_series = await asyncio.gather(*(series(client) for client in islice(cycle(clients), plan.clients)))
    return [answer for answers in all_series for answer in answers]


async def _main() -> None:
    plan = Plan(**json.load(sys.stdin))
    clients = [_Client(number, plan) for number in range(len(plan.keys))]
    answers = await (_in_turn(clients, plan) if plan.clients else _at_rate(clients, plan))
    json.dump([list(asdict(answer).values()) for answer in answers], sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main())
