"""Broken and hostile PDFs: every tool makes a result of them or refuses them, in the sandbox and in time."""

import asyncio
from pathlib import Path

import pytest

from engine import ConversionError
from engine.executor import LocalExecutor, Task, TaskLimits
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.hostile_pdfs import hostile_pdfs
from tests.support.samples.pdf_documents import READING, REGISTRY
from tests.support.samples.tool_requests import tool_requests
from web.api.error_catalogue import ERROR_CATALOGUE

pytestmark = pytest.mark.asyncio(loop_scope="session")

_LIMITS = TaskLimits(seconds=30)
_FAULTS = {"engine_error", "worker_crashed", "timeout"}
_ENDLESS = {("pdf-ocr", "forms by powers of ten")}  # to draw it takes longer than any deadline


async def _fault(executor: LocalExecutor, folder: Path, name: str, kind: str) -> str | None:
    """What a tool must not do with the file as its first one; None if it makes a result or refuses the file."""
    request, tool = tool_requests()[name], REGISTRY.tools[name]
    files = [hostile_pdfs()[kind], *request.inputs[1:], *request.files.values()]
    place = folder / f"{name} {kind}"
    place.mkdir()
    paths = [place / str(number) for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    plan = REGISTRY.plan(list(map(REGISTRY.identify, paths)), tool.target, name, request.options, tuple(request.files))
    job = FileJob(Task.of(plan, request.options), paths, place / "result")
    try:
        await run_files(executor, job, _LIMITS)
    except ConversionError as error:
        is_documented = error.reason in ERROR_CATALOGUE[error.code].reasons
        return None if is_documented and error.reason not in _FAULTS else f"{name}, {kind}: {error.reason} {error}"
    return None if job.output.stat().st_size else f"{name}, {kind}: no result"


async def _faults(executor: LocalExecutor, folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    limit = asyncio.Semaphore(4)
    pairs = [pair for pair in pairs if pair not in _ENDLESS]

    async def one(name: str, kind: str) -> str | None:
        async with limit:
            return await _fault(executor, folder, name, kind)

    return [fault for fault in await asyncio.gather(*(one(*pair) for pair in pairs)) if fault]


@pytest.mark.slow
async def test_each_file_by_some_tool(executor: LocalExecutor, tmp_path: Path) -> None:
    pairs = [(READING[place % len(READING)], kind) for place, kind in enumerate(hostile_pdfs())]

    assert await _faults(executor, tmp_path, pairs) == []


@pytest.mark.long
@pytest.mark.parametrize("name", READING)
async def test_all_files(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    assert await _faults(executor, tmp_path, [(name, kind) for kind in hostile_pdfs()]) == []
