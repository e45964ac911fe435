"""Files made to harm, one after the other and side by side, beside other clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

import httpx

from benchmarks import served
from benchmarks.faults.clients import Clients, books, leftovers
from benchmarks.faults.figures import Row, at_most, exactly
from tests.hostile import DONE, Canary, Hostile, Outcome, hostile_files

Tried = tuple[Outcome, float, float]


def files(folder: Path, share: int) -> list[Row]:
    """F11: each hostile file ends as it may, is not charged unless it was converted, and keeps nobody waiting."""
    url = served.sqlite(folder)
    (key,) = served.make_accounts(url, 1)
    secret = folder / "secret.svg"
    secret.write_text("<svg/>")
    chosen = list(hostile_files())[::share]
    visits = 0

    def visited(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.close()

    async def tried(at: str, side_by_side: int) -> list[Tried]:
        async with await asyncio.start_server(visited, "127.0.0.1", 0) as server:
            canary = Canary(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.svg", secret)
            turn = asyncio.Semaphore(side_by_side)
            return await asyncio.gather(*(_try(at, key, hostile, canary, turn) for hostile in chosen))

    with served.serving(folder) as (_, at):
        serial = asyncio.run(tried(at, 1))
        others = Clients(at, key, served.picture((600, 400)))

        async def beside() -> list[Tried]:
            found, _ = await asyncio.gather(tried(at, 4), others.order(len(chosen), 1))
            return found

        found = [*serial, *asyncio.run(beside())]
        left = leftovers(folder)
    return [
        *_judged([*chosen, *chosen], found),
        exactly("visits to the canary", visits, 0),
        exactly("its file untouched", secret.read_text() == "<svg/>", True),
        *books(url, len(others.tries) + sum(outcome == DONE for outcome, _, _ in found)),
        *left,
    ]


def _judged(tried: list[Hostile], found: list[Tried]) -> list[Row]:
    pairs = zip(tried, found, strict=True)
    wrong = [hostile.name for hostile, (outcome, _, _) in pairs if outcome not in hostile.allowed]
    return [
        ("files, each time", float(len(tried)), "", ""),
        exactly(f"outcomes that may not be {' '.join(wrong)}".strip(), len(wrong), 0),
        at_most("longest answer, s", max(seconds for _, seconds, _ in found), 65),
        at_most("longest answer of /formats afterwards, s", max(formats for _, _, formats in found), 1),
    ]


async def _try(url: str, key: str, hostile: Hostile, canary: Canary, turn: asyncio.Semaphore) -> Tried:
    """How the file ended, and the seconds of its answer and of the one to another client afterwards."""
    async with turn, httpx.AsyncClient(timeout=120) as client:
        content = await asyncio.to_thread(hostile.make, canary)
        began = perf_counter()
        answer = await client.post(
            url,
            files={"file": ("a", content)},
            data={"output_format": hostile.target},
            headers={"Authorization": f"Bearer {key}"},
        )
        answered = perf_counter()
        await client.get(url.replace("/convert", "/formats"))
        after = perf_counter() - answered
    error = {} if answer.is_success else answer.json()["error"]
    outcome = (str(error["code"]), str(error.get("reason") or "")) if error else DONE
    return outcome, answered - began, after
