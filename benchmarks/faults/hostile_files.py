"""Hostile files, converted in sequence and in parallel with the requests of other clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, check_ledger, check_work_files
from benchmarks.faults.kills import running_jobs
from benchmarks.report import Row, at_most, equals, info
from engine import UnknownFormat, memory_estimate
from engine.registry import load_registry
from tests.support.samples.corpus import UNSOUND, load_corpus
from tests.support.samples.hostile import (
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

_CONCURRENCY = 4
_SETTINGS = {"CONVERTD_WORKERS": str(_CONCURRENCY + 2)}  # other clients need not wait for jobs with long deadlines
_ANY_FAILURE = (BYTES, CORRUPT, DONE, ELEMENTS, FRAMES, MEMORY, PAGES, PIXELS, SCANS, TIMEOUT)
_REFUSED = tuple(("invalid_file_type", reason) for reason in ("unrecognized", "empty_file", "pdf_encrypted"))
_MEMORY_INTERVAL = 0.1  # seconds between readings of a job's memory peak


@dataclass(frozen=True)
class _Attempt:
    """The outcome of a hostile file, its latency and that of GET /formats afterwards, in seconds."""

    file: Hostile
    outcome: Outcome
    seconds: float
    formats_seconds: float


def convert_hostile_files(folder: Path, divisor: int) -> list[Row]:
    """F11: each hostile file has an allowed outcome, is charged only if converted, and delays no other client."""
    database_url = server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    secret = folder / "secret.svg"
    secret.write_text("<svg/>")
    files = [*hostile_files(), *_corpus_files()][::divisor]
    visits = 0

    def count_visit(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.close()

    async def convert_all(url: str, concurrency: int) -> list[_Attempt]:
        async with await asyncio.start_server(count_visit, "127.0.0.1", 0) as listener:
            canary = Canary(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/a.svg", secret)
            slots = asyncio.Semaphore(concurrency)
            return await asyncio.gather(*(_convert(url, key, file, canary, slots) for file in files))

    async def convert_beside(others: Clients) -> list[_Attempt]:
        attempts, _ = await asyncio.gather(convert_all(others.url, _CONCURRENCY), others.convert(len(files), 1))
        return attempts

    with server_process.serving(folder, _SETTINGS) as (server, url), _job_memory(server.pid, folder) as peaks:
        others = Clients(url, key, server_process.picture((600, 400)))
        attempts = [*asyncio.run(convert_all(url, 1)), *asyncio.run(convert_beside(others))]
        file_rows = check_work_files(server.pid, folder)
    return [
        *_check_attempts(attempts),
        at_most("largest job, GiB", max(peaks) / 2**30, memory_estimate.MAX_BYTES / 2**30),
        equals("requests to the canary URL", visits, 0),
        equals("canary file unchanged", secret.read_text() == "<svg/>", True),
        equals("conversions of other clients", others.succeeded, len(files)),
        *check_ledger(database_url, others.succeeded + sum(attempt.outcome == DONE for attempt in attempts)),
        *file_rows,
    ]


def _corpus_files() -> Iterator[Hostile]:
    """Yields the broken and hostile files of the corpus, each with every possible output format."""
    registry = load_registry()
    for entry in load_corpus():
        if entry.category in UNSOUND:
            try:
                targets = [target.name for target in registry.targets(registry.identify(entry.path))]
            except UnknownFormat:
                targets = ["png"]
            for target in targets:
                yield Hostile(f"{entry.name}-{target}", partial(_read, entry.path), _ANY_FAILURE + _REFUSED, target)


def _read(path: Path, _canary: Canary) -> bytes:
    return path.read_bytes()


@contextmanager
def _job_memory(pid: int, folder: Path) -> Iterator[list[int]]:
    """Yields a list that collects the memory peaks of the server's jobs in bytes."""
    peaks, stop = [0], threading.Event()

    def collect() -> None:
        while not stop.wait(_MEMORY_INTERVAL):
            peaks.extend(map(_peak_memory, running_jobs(pid, folder)))

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()


def _peak_memory(pid: int) -> int:
    """Returns the peak resident memory of a process in bytes, 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _check_attempts(attempts: Sequence[_Attempt]) -> list[Row]:
    wrong = [
        f"{attempt.file.name}: {attempt.outcome}" for attempt in attempts if attempt.outcome not in attempt.file.allowed
    ]
    return [
        info("conversions of hostile files", len(attempts)),
        equals(f"outcomes that are not allowed {', '.join(wrong)}".strip(), len(wrong), 0),
        at_most("longest latency, s", max(attempt.seconds for attempt in attempts), 60),
        at_most("longest latency of /formats, s", max(attempt.formats_seconds for attempt in attempts), 1),
    ]


async def _convert(url: str, key: str, file: Hostile, canary: Canary, slots: asyncio.Semaphore) -> _Attempt:
    async with slots, httpx.AsyncClient(timeout=120) as client:
        content = await asyncio.to_thread(file.make, canary)
        data, headers = {"output_format": file.target}, {"Authorization": f"Bearer {key}"}
        files = {"file": ("a", content)}
        started = monotonic()
        # The jobs of an account that keep ending by their deadline wait for one slot, some of them too long.
        while (response := await client.post(url, files=files, data=data, headers=headers)).status_code == 429:
            await asyncio.sleep(int(response.headers["Retry-After"]))
            started = monotonic()
        responded = monotonic()
        await client.get(url.replace("/convert", "/formats"))
        formats_seconds = monotonic() - responded
    error = {} if response.is_success else response.json()["error"]
    outcome = (str(error["code"]), str(error.get("reason") or "")) if error else DONE
    return _Attempt(file, outcome, responded - started, formats_seconds)
