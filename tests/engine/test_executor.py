"""Jobs that crash, hang or use up memory fail alone: real processes, and a plugin that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from engine import ConversionError
from engine.executor import Job, JobInput, JobLimits, JobResult, LocalExecutor
from tests.support.executors import ACCOUNT, misbehaving
from tests.support.samples import sample

pytestmark = pytest.mark.asyncio(loop_scope="module")

Running: TypeAlias = "asyncio.Task[JobResult]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Two workers, with the misbehaving plugin."""
    async with misbehaving(2) as made:
        yield made


_both_kinds = pytest.mark.parametrize("isolated", [False, True])


def _job(folder: Path, deed: str, target: str = "png", *, isolated: bool = False) -> Job:
    source = folder / f"{deed}.trouble"
    source.write_bytes(b"TROUBLE " + deed.encode())
    return Job((JobInput(source, "trouble"),), folder / f"{deed}.out", target, isolated=isolated)


async def _failure(executor: LocalExecutor, job: Job, limits: JobLimits = JobLimits()) -> ConversionError:
    with pytest.raises(ConversionError) as raised:
        await executor.run(job, ACCOUNT, limits)
    assert not job.output.exists()
    return raised.value


async def test_a_job_leaves_its_result(executor: LocalExecutor, tmp_path: Path) -> None:
    job = _job(tmp_path, "behave")

    done = await executor.run(job, ACCOUNT)

    assert job.output.read_bytes().startswith(b"\x89PNG")
    assert done.size == job.output.stat().st_size
    assert [timing.step for timing in done.trace] == ["trouble -> raster", "raster -> png"]


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("crash", "worker_crashed"),
        ("exit", "worker_crashed"),
        ("eat", "out_of_memory"),
        ("overwork", "timeout"),
        ("raise", "corrupt_input"),
        ("late", "corrupt_input"),
        ("lie", "engine_error"),
    ],
)
async def test_failures_have_reasons(executor: LocalExecutor, tmp_path: Path, deed: str, reason: str) -> None:
    error = await _failure(executor, _job(tmp_path, deed))

    assert (error.code, error.reason) == ("processing_failed", reason)
    assert error.retryable == (reason not in ("corrupt_input", "engine_error"))


async def test_a_small_picture_gets_little_memory(executor: LocalExecutor, tmp_path: Path) -> None:
    """The memory limit follows the number of pixels in the header, up to the job's limit."""
    size = 640 << 20

    assert (await _failure(executor, _job(tmp_path, f"claim 8 {size}"))).reason == "out_of_memory"
    await executor.run(_job(tmp_path, f"claim 8000 {size}"), ACCOUNT)
    error = await _failure(executor, _job(tmp_path, f"claim 8001 {size}"), JobLimits(memory=size // 2))
    assert error.reason == "out_of_memory"


async def test_cpu_time_is_limited() -> None:
    program = "from engine import sandbox; sandbox.limit_job(seconds=0.5, output=1, final=True)\nwhile True: pass"

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == -signal.SIGXCPU


async def test_each_job_of_a_process_has_its_own_cpu_time() -> None:
    program = """
import time
from engine import sandbox
for _ in range(5):
    sandbox.limit_job(seconds=0.5, output=1, final=False)
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
"""

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0


@pytest.mark.parametrize("deed", ["hang", "spin", "child"])
async def test_the_deadline_kills(executor: LocalExecutor, tmp_path: Path, deed: str) -> None:
    error = await _failure(executor, _job(tmp_path, deed), JobLimits(seconds=1))

    assert error.reason == "timeout"
    assert not await _sleepers()


async def _sleepers() -> list[bytes]:
    """Processes that jobs left behind, after the kernel had time to end them."""
    for _ in range(50):
        if not _sleeping():
            break
        await asyncio.sleep(0.1)
    return _sleeping()


def _sleeping() -> list[bytes]:
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # gone since it was listed
            commands.append(path.read_bytes())
    return [command for command in commands if command.startswith(b"sleep\x00600")]


async def test_a_result_over_its_limit_is_refused(executor: LocalExecutor, tmp_path: Path) -> None:
    job = _job(tmp_path, "bloat", "bmp")

    await executor.run(job, ACCOUNT)
    error = await _failure(executor, job, JobLimits(output=1 << 20))

    assert (error.reason, str(error)) == ("engine_error", "The conversion failed: OSError.")
    assert not job.output.exists()


@pytest_asyncio.fixture(loop_scope="module")
async def slow(executor: LocalExecutor, tmp_path: Path) -> AsyncIterator[tuple[Job, threading.Timer, Running]]:
    """A job whose input cannot be opened before the timer's function runs, at the latest after ten seconds."""
    job = _job(tmp_path, "behave")
    source, deed = job.inputs[0].path, job.inputs[0].path.read_bytes()
    source.unlink()
    os.mkfifo(source)
    late = threading.Timer(10, source.write_bytes, [deed])
    late.start()
    running = asyncio.create_task(executor.run(job, ACCOUNT))
    await asyncio.sleep(0.1)
    yield job, late, running
    late.cancel()
    os.close(os.open(source, os.O_RDWR))  # unblocks the job if a test has failed
    await asyncio.wait([running])


async def test_opening_files_does_not_block_the_event_loop(slow: tuple[Job, threading.Timer, Running]) -> None:
    job, late, running = slow

    assert not late.finished.is_set()

    await asyncio.to_thread(late.function, *late.args)
    done = await running
    assert done.size == job.output.stat().st_size


async def test_cancelling_while_files_are_opened_leaves_no_files(slow: tuple[Job, threading.Timer, Running]) -> None:
    job, late, running = slow

    running.cancel()
    await asyncio.to_thread(late.function, *late.args)

    with pytest.raises(asyncio.CancelledError):
        await running
    assert not job.output.exists()
    assert not {job.inputs[0].path, job.output} & _open_files()


def _open_files() -> set[Path]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            found.add(descriptor.readlink())
    return found


async def test_good_jobs_succeed_beside_bad_ones(executor: LocalExecutor, tmp_path: Path) -> None:
    """Twelve good jobs beside twelve that crash, hang or use up memory."""
    source = tmp_path / "good.png"
    source.write_bytes(sample("png"))
    deeds = ["crash", "hang", "eat", "exit"] * 2
    limits = JobLimits(seconds=1, memory=512 << 20)
    bad = [asyncio.create_task(_failure(executor, _job(tmp_path, deed), limits)) for deed in deeds]
    good = [
        executor.run(Job((JobInput(source, "png"),), tmp_path / f"{number}.jpg", "jpeg"), ACCOUNT)
        for number in range(12)
    ]

    assert len(await asyncio.gather(*good)) == 12
    assert len(await asyncio.gather(*bad)) == len(deeds)


async def test_cancelling_kills_the_process(executor: LocalExecutor, tmp_path: Path) -> None:
    task = asyncio.create_task(executor.run(_job(tmp_path, "child"), ACCOUNT))
    await asyncio.sleep(0.5)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await _sleepers()
