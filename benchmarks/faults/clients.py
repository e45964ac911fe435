"""Clients that do not give up, and what a server has left when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks import server_process
from benchmarks.report import Row, at_most, exactly
from benchmarks.server_process import Answer
from storage import ledger_audit
from tests.support.servers import eventually

_PAUSE = 0.3  # seconds between the tries of a client
_TIMEOUT = 90  # seconds; longer than any job may take
_TRIES = 40


@dataclass
class Clients:
    """Clients of one account, each with one order after the other, an idempotency key an order.

    A failure that is final for its key is tried again under another one.
    """

    url: str
    key: str
    content: bytes
    series: str = "order"
    answers: list[Answer] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)  # of each order that was served

    async def order(self, count: int, clients: int = 8) -> None:
        """So many orders, until each is served or was tried too often."""
        orders = iter(range(count))
        async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
            await asyncio.gather(*(self._client(client, orders) for _ in range(clients)))

    async def _client(self, client: httpx.AsyncClient, orders: Iterator[int]) -> None:
        for order in orders:
            final = 0
            for attempt in range(1, _TRIES + 1):
                answer = await server_process.ask(
                    client, self.url, self.key, self.content, f"{self.series}-{order}-{final}"
                )
                self.answers.append(answer)
                if answer.status == 200:
                    self.tries.append(attempt)
                    break
                final += not answer.retryable
                await asyncio.sleep(_PAUSE)

    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers}

    def seconds(self) -> list[float]:
        """How long each try took."""
        return [answer.seconds for answer in self.answers]


def books(url: str, served_orders: int, seconds: float = 10) -> list[Row]:
    """Whether the one account was charged for what it was served, and for nothing else."""
    eventually(lambda: server_process.held_and_used(url, 1)[0] == 0, seconds)
    held, used = server_process.held_and_used(url, 1)
    with server_process.opened(url) as database:
        problems = database.run_blocking(ledger_audit.check)
    return [
        exactly("credits charged", used, served_orders),
        exactly("credits held", held, 0),
        exactly("problems in the ledger", len(problems), 0),
    ]


def leftovers(folder: Path) -> list[Row]:
    """Whether the folders of requests are gone."""
    eventually(lambda: not _jobs(folder))
    return [at_most("folders of requests left", len(_jobs(folder)), 0)]


def _jobs(folder: Path) -> list[Path]:
    return list((folder / "jobs").iterdir())


async def beside(work: asyncio.Task[None], disturb: Callable[[], None], every: float) -> int:
    """Disturbs the work every so many seconds while it lasts; says how often."""
    count = 0
    while not work.done():
        await asyncio.wait([work], timeout=every)
        if not work.done():
            await asyncio.to_thread(disturb)
            count += 1
    work.result()
    return count
