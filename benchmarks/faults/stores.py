"""What a server stands on goes away for a while: Redis, room on the disk, the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks import served
from benchmarks.faults.clients import books, leftovers
from benchmarks.faults.figures import Row, at_most, exactly, p99
from tests.redis_server import RedisServer

_SMALL = (64, 48)
_RATE = 10  # requests a second, of which two cores can do that many beside the clients


def redis(folder: Path, share: int) -> list[Row]:
    """F3: Redis stands still, then is killed, for ten seconds each."""
    seconds = max(3, 10 // share)
    (key,) = served.make_accounts(served.sqlite(folder), 1)
    with (
        RedisServer(folder) as store,
        served.serving(folder, {"CONVERTD_REDIS_URL": store.url}) as (_, at),
    ):
        calm = asyncio.run(_steady(at, key, seconds))
        stalled = asyncio.run(_steady(at, key, seconds, store.stall, store.resume))
        killed = asyncio.run(_steady(at, key, seconds, store.kill, store.start))
        left = leftovers(folder)
    rows: list[Row] = []
    for name, answers in (("stalled", stalled), ("killed", killed)):
        added = p99([answer.seconds for answer in answers]) - p99([answer.seconds for answer in calm])
        rows.append(exactly(f"{name}: answers but 200", sum(answer.status != 200 for answer in answers), 0))
        rows.append(at_most(f"{name}: added at p99, s", added, 0.15))
    return [*rows, *books(served.sqlite(folder), len(calm) + len(stalled) + len(killed)), *left]


async def _steady(
    url: str,
    key: str,
    seconds: float,
    fail: Callable[[], None] = lambda: None,
    mend: Callable[[], None] = lambda: None,
) -> list[served.Answer]:
    """Requests at a steady rate while something fails, and as long again when it is mended."""
    content, asked = served.picture(_SMALL), []
    async with httpx.AsyncClient(timeout=60) as client:
        for change in (fail, mend):
            await asyncio.to_thread(change)
            for _ in range(int(seconds * _RATE)):
                asked.append(asyncio.create_task(served.ask(client, url, key, content)))
                await asyncio.sleep(1 / _RATE)
        return await asyncio.gather(*asked)
