"""Jobs that crash, hang or use up memory fail alone: real processes, and a plugin that misbehaves on purpose."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from engine import ConversionError
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.executor.local import reopen
from engine.mupdf import pymupdf
from tests.support.executors.isolated import ACCOUNT, ALL_MODULES, FileJob, misbehaving, run_files, trouble_job
from tests.support.samples.generated import sample

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Two workers, with the misbehaving plugin."""
    async with misbehaving(2, modules=ALL_MODULES) as made:
        yield made


async def _failure(executor: LocalExecutor, job: FileJob, limits: TaskLimits = TaskLimits()) -> ConversionError:
    with pytest.raises(ConversionError) as raised:
        await run_files(executor, job, limits)
    assert not job.output.exists()
    return raised.value


async def test_a_job_leaves_its_result(executor: LocalExecutor, tmp_path: Path) -> None:
    job = trouble_job(tmp_path, "behave")

    done = await run_files(executor, job)

    assert job.output.read_bytes().startswith(b"\x89PNG")
    assert done.outcome.processed_size == job.output.stat().st_size
    assert done.seconds > 0
    assert [timing.step for timing in done.trace] == ["trouble -> raster", "metadata", "raster -> png"]


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("crash", "worker_crashed"),
        ("exit", "worker_crashed"),
        ("eat", "out_of_memory"),
        ("abort", "out_of_memory"),
        ("panic", "engine_error"),
        ("overwork", "timeout"),
        ("raise", "corrupt_input"),
        ("late", "corrupt_input"),
        ("lie", "engine_error"),
    ],
)
async def test_failures_have_reasons(executor: LocalExecutor, tmp_path: Path, deed: str, reason: str) -> None:
    error = await _failure(executor, trouble_job(tmp_path, deed), TaskLimits(memory=512 << 20))

    assert (error.code, error.reason) == ("processing_failed", reason)
    assert error.retryable == (reason in ("worker_crashed", "timeout"))


@pytest.mark.parametrize(
    ("deed", "cause"), [("raise", r"RuntimeError: a bug \(misbehaving/misbehaving\.py:\d+\)"), ("lie", None)]
)
async def test_a_failure_has_its_cause(executor: LocalExecutor, tmp_path: Path, deed: str, cause: str | None) -> None:
    error = await _failure(executor, trouble_job(tmp_path, deed))

    assert error.cause == cause if cause is None else re.fullmatch(cause, str(error.cause))
    assert "a bug" not in str(error.as_json())


async def test_a_small_image_gets_little_memory(executor: LocalExecutor, tmp_path: Path) -> None:
    """The memory limit follows the number of pixels in the header, up to the job's limit."""
    size = 640 << 20

    assert (await _failure(executor, trouble_job(tmp_path, f"claim 8 {size}"))).reason == "out_of_memory"
    await run_files(executor, trouble_job(tmp_path, f"claim 8000 {size}"))
    error = await _failure(executor, trouble_job(tmp_path, f"claim 8001 {size}"), TaskLimits(memory=size // 2))
    assert error.reason == "out_of_memory"


async def test_a_page_without_memory_is_no_damaged_document(executor: LocalExecutor, tmp_path: Path) -> None:
    source = tmp_path / "in.pdf"
    with pymupdf.open() as document:
        document.new_page(width=500, height=700).draw_rect((50, 50, 450, 650), fill=(1, 0, 0))
        document.save(source)
    job = FileJob(Task(("pdf",), "png", {"dpi": 1200}), [source], tmp_path / "out")

    assert (await _failure(executor, job, TaskLimits(memory=200 << 20))).reason == "out_of_memory"


async def test_cpu_time_is_limited() -> None:
    program = """
import time
from engine import sandbox
sandbox.limit_task(cpu=1, output=1, final=True)
while time.process_time() < 20: pass
"""

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == -signal.SIGXCPU


async def test_each_job_of_a_process_has_its_own_cpu_time() -> None:
    program = """
import time
from engine import sandbox
for _ in range(5):
    sandbox.limit_task(cpu=1, output=1, final=False)
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
"""

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0


@pytest.mark.parametrize("deed", ["hang", "spin", "child"])
async def test_the_deadline_kills(executor: LocalExecutor, tmp_path: Path, deed: str) -> None:
    error = await _failure(executor, trouble_job(tmp_path, deed, programs=deed == "child"), TaskLimits(seconds=1))

    assert error.reason == "timeout"
    assert error.seconds == pytest.approx(1, abs=0.9)
    assert not await _sleepers()


@pytest.mark.parametrize("deed", ["compute", "compute_in_child"])
async def test_the_cpu_time_of_a_job_is_limited_and_told(executor: LocalExecutor, tmp_path: Path, deed: str) -> None:
    """That of the processes that it starts, too, also of those that have ended."""
    programs = deed == "compute_in_child"

    error = await _failure(executor, trouble_job(tmp_path, f"{deed} 30", programs=programs), TaskLimits(cpu=1))
    done = await run_files(executor, trouble_job(tmp_path, f"{deed} 0.4", programs=programs))

    assert (error.reason, error.details) == ("timeout", {"max_seconds": 1})
    assert error.seconds is not None
    assert error.seconds >= 1
    assert done.seconds >= 0.35  # the time of processes that have ended counts in steps of 10 ms


async def _sleepers() -> list[str]:
    """Processes that jobs left behind, after the kernel had time to end them."""
    for _ in range(50):
        if not _sleeping():
            break
        await asyncio.sleep(0.1)
    return _sleeping()


def _sleeping() -> list[str]:
    """The files that children of jobs keep open."""
    files = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # closed since it was listed
            files.append(str(path.readlink()))
    return [file for file in files if "/left-child" in file]


async def test_a_result_over_its_limit_is_refused(executor: LocalExecutor, tmp_path: Path) -> None:
    job = trouble_job(tmp_path, "bloat", "bmp")

    await run_files(executor, job)
    error = await _failure(executor, job, TaskLimits(output=1 << 20))

    assert (error.code, error.reason, error.details) == ("file_too_large", "bytes", {"max_bytes": 1 << 20})
    assert not job.output.exists()


async def test_the_files_of_a_job_can_be_used_again(executor: LocalExecutor, tmp_path: Path) -> None:
    """A job depends neither on the position of a file nor on earlier content of the output."""
    job = trouble_job(tmp_path, "behave")
    with job.inputs[0].open("r+b", buffering=0) as source, job.output.open("w+b", buffering=0) as output:
        output.write(bytes(1 << 20))
        for _ in range(2):
            source.seek(0, os.SEEK_END)
            done = await executor.run(job.job, ACCOUNT, [source.fileno()], output.fileno())
            assert os.fstat(output.fileno()).st_size == done.outcome.processed_size

    assert job.output.read_bytes().startswith(b"\x89PNG")


async def test_jobs_cannot_write_to_their_inputs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("w+b", buffering=0) as file:
        file.write(b"before")
        with reopen([file.fileno()]) as (descriptor,):
            assert os.read(descriptor, 100) == b"before"
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(descriptor, b"after")
            for change in (os.ftruncate, os.posix_fallocate):
                with pytest.raises(OSError, match=r"Invalid argument|Bad file descriptor"):
                    change(descriptor, *((0,) if change is os.ftruncate else (0, 9)))


async def test_files_that_cannot_be_opened(executor: LocalExecutor, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output, pytest.raises(ConversionError, match="cannot be opened"):
        await executor.run(Task(("png",), "jpeg"), ACCOUNT, [-1], output.fileno())


async def test_a_named_pipe_is_an_error(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(ConversionError, match="regular"):
            await executor.run(Task(("trouble",), "png"), ACCOUNT, [descriptor], descriptor)
    finally:
        os.close(descriptor)


async def test_good_jobs_succeed_beside_bad_ones(executor: LocalExecutor, tmp_path: Path) -> None:
    """Twelve good jobs beside twelve that crash, hang or use up memory."""
    source = tmp_path / "good.png"
    source.write_bytes(sample("png"))
    deeds = ["crash", "hang", "eat", "exit"] * 2
    limits = TaskLimits(seconds=1, memory=64 << 20)
    bad = [asyncio.create_task(_failure(executor, trouble_job(tmp_path, deed), limits)) for deed in deeds]
    good = [run_files(executor, FileJob(Task(("png",), "jpeg"), [source], tmp_path / f"{n}.jpg")) for n in range(12)]

    assert len(await asyncio.gather(*good)) == 12
    assert len(await asyncio.gather(*bad)) == len(deeds)


async def test_cancelling_kills_the_process(executor: LocalExecutor, tmp_path: Path) -> None:
    task = asyncio.create_task(run_files(executor, trouble_job(tmp_path, "child", programs=True)))
    async with asyncio.timeout(10):
        while not _sleeping():  # noqa: ASYNC110, another process starts it
            await asyncio.sleep(0.02)

    task.cancel()

    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    cause = cancelled.value.__cause__
    assert isinstance(cause, ConversionError)
    assert cause.seconds
    assert not await _sleepers()
