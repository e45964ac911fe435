"""Files made to harm, one after the other and side by side, beside other clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, books, leftovers
from benchmarks.faults.kills import running_jobs
from benchmarks.report import Row, at_most, exactly
from engine import UnknownFormat, memory_estimate
from engine.registry import load_registry
from tests.support.corpus import UNSOUND, load_corpus
from tests.support.hostile import (
    BYTES,
    CORRUPT,
    DONE,
    ELEMENTS,
    FRAMES,
    MEMORY,
    PAGES,
    PIXELS,
    SCANS,
    TIMEOUT,
    Canary,
    Hostile,
    Outcome,
    hostile_files,
)

_SIDE_BY_SIDE = 4
_WORKERS = {"CONVERTD_WORKERS": str(_SIDE_BY_SIDE + 2)}  # so that others do not wait for bombs to reach their deadline
_MAY = (BYTES, CORRUPT, DONE, ELEMENTS, FRAMES, MEMORY, PAGES, PIXELS, SCANS, TIMEOUT)
_REFUSED = tuple(("invalid_file_type", reason) for reason in ("unrecognized", "empty_file", "pdf_encrypted"))
_LOOK_EVERY = 0.1  # seconds, in which a job's memory is looked at; the kernel keeps its peak

Tried = tuple[Outcome, float, float]


def files(folder: Path, share: int) -> list[Row]:
    """F11: each hostile file ends as it may, is not charged unless it was converted, and keeps nobody waiting."""
    url = server_process.sqlite(folder)
    (key,) = server_process.make_accounts(url, 1)
    secret = folder / "secret.svg"
    secret.write_text("<svg/>")
    chosen = [*hostile_files(), *_real_files()][::share]
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

    with server_process.serving(folder, _WORKERS) as (server, at), _watched(server.pid, folder) as peaks:
        serial = asyncio.run(tried(at, 1))
        others = Clients(at, key, server_process.picture((600, 400)))

        async def beside() -> list[Tried]:
            found, _ = await asyncio.gather(tried(at, _SIDE_BY_SIDE), others.order(len(chosen), 1))
            return found

        found = [*serial, *asyncio.run(beside())]
        left = leftovers(folder)
    return [
        *_judged([*chosen, *chosen], found),
        at_most("largest job, GiB", max(peaks) / 2**30, memory_estimate.MAX_BYTES / 2**30),
        exactly("visits to the canary", visits, 0),
        exactly("its file untouched", secret.read_text() == "<svg/>", True),
        exactly("orders of others served", len(others.tries), len(chosen)),
        *books(url, len(others.tries) + sum(outcome == DONE for outcome, _, _ in found)),
        *left,
    ]


def _real_files() -> Iterator[Hostile]:
    """The broken and hostile files of the corpus, each with every target that it could have."""
    registry = load_registry()
    for entry in load_corpus():
        if entry.category in UNSOUND:
            try:
                targets = [target.name for target in registry.targets(registry.identify(entry.path))]
            except UnknownFormat:
                targets = ["png"]
            for target in targets:
                yield Hostile(f"{entry.name}-{target}", partial(_read, entry.path), _MAY + _REFUSED, target)


def _read(path: Path, _canary: Canary) -> bytes:
    return path.read_bytes()


@contextmanager
def _watched(pid: int, folder: Path) -> Iterator[list[int]]:
    """The peaks of what jobs of that server held in memory, in bytes, for as long as the block runs."""
    peaks, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            peaks.extend(map(_peak, running_jobs(pid, folder)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peaks
    finally:
        over.set()
        watching.join()


def _peak(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _judged(tried: Sequence[Hostile], found: Sequence[Tried]) -> list[Row]:
    pairs = zip(tried, found, strict=True)
    wrong = [f"{hostile.name}: {outcome}" for hostile, (outcome, _, _) in pairs if outcome not in hostile.allowed]
    return [
        ("files, each time", float(len(tried)), "", ""),
        exactly(f"outcomes that may not be {', '.join(wrong)}".strip(), len(wrong), 0),
        at_most("longest answer, s", max(seconds for _, seconds, _ in found), 60),
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
