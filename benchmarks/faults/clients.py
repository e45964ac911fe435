"""Clients that retry until they succeed, and checks of the server's state afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks import server_process
from benchmarks.load_generator import TimedResponse
from benchmarks.report import Row, equals
from storage.tables import ledger_audit
from tests.support.servers.in_process import eventually, open_work_files

_RETRY_DELAY = 0.3  # seconds
_TIMEOUT = 90  # seconds; longer than the deadline of a job
_MAX_ATTEMPTS = 40


@dataclass
class Clients:
    """Concurrent clients of one account that convert the same file, with one idempotency key per conversion.

    After an error that is not retryable, the conversion continues with a new idempotency key.
    """

    url: str
    key: str
    content: bytes
    key_prefix: str = "conversion"
    responses: list[TimedResponse] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)  # per successful conversion

    async def convert(self, count: int, concurrency: int = 8) -> None:
        """Runs `count` conversions, each until it succeeds or has used up its attempts."""
        numbers = iter(range(count))
        async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
            await asyncio.gather(*(self._client(client, numbers) for _ in range(concurrency)))

    async def _client(self, client: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        for number in numbers:
            failures = 0
            for attempt in range(1, _MAX_ATTEMPTS + 1):
                idempotency_key = f"{self.key_prefix}-{number}-{failures}"
                response = await server_process.convert(client, self.url, self.key, self.content, idempotency_key)
                self.responses.append(response)
                if response.status == 200:
                    self.attempts.append(attempt)
                    break
                failures += not response.retryable
                await asyncio.sleep(_RETRY_DELAY)

    @property
    def succeeded(self) -> int:
        """Number of successful conversions."""
        return len(self.attempts)

    def statuses(self) -> set[int]:
        """Returns the distinct HTTP statuses; 0 is a failed connection."""
        return {response.status for response in self.responses}

    def seconds(self) -> list[float]:
        """Returns the latency of each attempt."""
        return [response.seconds for response in self.responses]


def check_ledger(url: str, conversions: int, timeout: float = 10, accounts: int = 1) -> list[Row]:
    """Checks that the first `accounts` were charged for exactly these conversions, within `timeout` seconds."""
    eventually(lambda: server_process.held_and_used(url, accounts)[0] == 0, timeout)
    held, used = server_process.held_and_used(url, accounts)
    with server_process.open_database(url) as database:
        problems = database.read_blocking(ledger_audit.check)
    return [
        equals("credits charged", used, conversions),
        equals("credits held", held, 0),
        equals("inconsistencies in the ledger", len(problems), 0),
    ]


def check_work_files(pid: int, folder: Path) -> list[Row]:
    """Checks that the server has closed all uploads and results, and that none has a name in the data folder."""
    eventually(lambda: not open_work_files(folder, pid))
    return [
        equals("work files left open", len(open_work_files(folder, pid)), 0),
        equals("work files left on the disk", len(list((folder / "jobs").iterdir())), 0),
    ]


async def repeat_during(work: asyncio.Task[None], action: Callable[[], None], interval: float) -> int:
    """Runs a blocking action every `interval` seconds until the work ends. Returns how often it ran."""
    count = 0
    while not work.done():
        await asyncio.wait([work], timeout=interval)
        if not work.done():
            await asyncio.to_thread(action)
            count += 1
    work.result()
    return count
