"""Pages that several processes convert: the result is that of one process, whatever becomes of the others."""

import asyncio
import os
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import islice
from pathlib import Path

import pytest

from engine import FidelityWarning, Raster
from engine.conversions import EncodedFile
from engine.executor import LocalExecutor, Task, local
from engine.executor.forkserver import ForkServer
from engine.executor.pool import Worker, WorkerPool
from engine.mupdf import pymupdf
from engine.options import OptionValues
from engine.outcome import Outcome
from engine.page_sharing import TABLE_BYTES, PageSharing
from engine.registry import load_registry
from engine.sandbox import LAYERS

PAGES = 14


def _files(folder: Path) -> tuple[int, int]:
    """Descriptors of the table and of the results, as each process has them."""
    table = os.open(folder / "table", os.O_RDWR | os.O_CREAT)
    os.ftruncate(table, TABLE_BYTES)
    return table, os.open(folder / "results", os.O_RDWR | os.O_APPEND | os.O_CREAT)


def _convert(index: int) -> EncodedFile:
    FidelityWarning.issue("repaired", f"Page {index}.")
    return EncodedFile(b"%d" % index, Raster((), sizes=[(index, 1)]))


def test_the_leader_takes_over_what_assistants_have_completed(tmp_path: Path) -> None:
    converted: list[int] = []

    def convert(index: int) -> EncodedFile:
        converted.append(index)
        return _convert(index)

    def fail(index: int) -> EncodedFile:
        raise ValueError(index)

    for pages in (2, 1):
        with closing(PageSharing(*_files(tmp_path), leads=False)) as assistant:
            assert len(list(islice(assistant.files(6, convert), pages))) == pages
    with closing(PageSharing(*_files(tmp_path), leads=False)) as broken, pytest.raises(ValueError, match="2"):
        next(broken.files(6, fail))
    with closing(PageSharing(*_files(tmp_path), leads=True)) as leader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        files = list(leader.files(6, convert))

    assert converted == [5, 4, 3, 0, 1, 2]
    assert [file.data for file in files] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [file.encoder_input.sizes for file in files] == [[(index, 1)] for index in range(6)]
    assert [str(one.message) for one in caught] == [f"('repaired', 'Page {index}.')" for index in range(6)]


class ObservedPool(WorkerPool):
    """Remembers the workers of all tasks."""

    def __init__(self) -> None:
        super().__init__(ForkServer(LAYERS), 2, 1000)
        self.workers: list[Worker] = []

    @asynccontextmanager
    async def worker(self, account: str, *, own_process: bool, template: str = "") -> AsyncIterator[Worker]:
        async with super().worker(account, own_process=own_process, template=template) as worker:
            self.workers.append(worker)
            yield worker


@pytest.mark.asyncio
@pytest.mark.long
async def test_the_result_does_not_depend_on_assistants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assistant that is killed, or ends because another account needs the core, leaves nothing."""
    monkeypatch.setattr(local, "ALONE", 0)
    with pymupdf.open() as document:
        for number in range(PAGES):
            page = document.new_page(width=400 + number, height=500)
            page.insert_text((50, 60), f"Page {number}", fontsize=40)
        document.save(tmp_path / "a.pdf")
    registry = load_registry()
    options: OptionValues = {"pages": "all", "dpi": 250, "width": 1400}  # the first page decides on the resolution
    task = Task.of(registry.plan([registry.formats["pdf"]], "png", options=options), options)
    short = Task.of(registry.plan([registry.formats["pdf"]], "txt"))
    pool = ObservedPool()

    async def run(executor: LocalExecutor, account: str, task: Task) -> tuple[bytes, Outcome]:
        with (tmp_path / "a.pdf").open("rb") as source, (tmp_path / account).open("w+b") as output:
            result = await executor.run(task, account, [source.fileno()], output.fileno())
            return output.read(), result.outcome

    executor = LocalExecutor(2, pool=pool, cores=2)
    try:
        expected = await run(LocalExecutor(2, pool=pool), "alone", task)
        assert len(pool.workers) == 1
        for end in ("completion", "kill", "other task"):
            pool.workers.clear()
            leading = asyncio.create_task(run(executor, "shared", task))
            while len(pool.workers) < 2 or not _seconds(pool.workers[1]) > 0.05:
                assert not leading.done()
                await asyncio.sleep(0.01)
            leader, assistant = pool.workers
            assert (leader.account, assistant.account) == ("shared", "shared")
            if end == "kill":
                assistant.process.kill()
            elif end == "other task":
                await run(executor, "other", short)
            while end != "completion" and _is_alive(assistant):
                assert not leading.done()
                await asyncio.sleep(0.01)
            assert await leading == expected
            await asyncio.to_thread(_wait_for_end, assistant)
    finally:
        await executor.close()


def _seconds(worker: Worker) -> float:
    """The CPU time of the process of a worker; none if it has ended."""
    try:
        return worker.process.cpu_seconds(children=False)
    except OSError:
        return 0.0


def _wait_for_end(worker: Worker) -> None:
    while _is_alive(worker):
        time.sleep(0.01)


def _is_alive(worker: Worker) -> bool:
    return Path(f"/proc/{worker.process.pid}").exists()
