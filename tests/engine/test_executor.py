"""Jobs that crash, hang or use up memory fail alone: real processes, and a plugin that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from engine import ConversionError
from engine.executor import Job, JobLimits, JobResult, LocalExecutor
from engine.executor.local import Pool, _reopen
from tests.support.executors import MISBEHAVING, FileJob, misbehaving, run_files
from tests.support.samples import sample

pytestmark = pytest.mark.asyncio(loop_scope="module")

Running: TypeAlias = "asyncio.Task[JobResult]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Two workers, with the misbehaving plugin."""
    async with misbehaving(2) as made:
        yield made


_both_kinds = pytest.mark.parametrize("lazy", [False, True])


def _pool(executor: LocalExecutor, *, lazy: bool) -> Pool:
    """The pool that runs such jobs."""
    return executor._full if lazy else executor._light


def _job(folder: Path, deed: str, target: str = "png", *, lazy: bool = True) -> FileJob:
    source = folder / f"{deed}.trouble"
    source.write_bytes(b"TROUBLE " + deed.encode())
    return FileJob(Job(("trouble",), target, lazy=lazy), [source], folder / f"{deed}.out")


async def _failure(executor: LocalExecutor, job: FileJob, limits: JobLimits = JobLimits()) -> ConversionError:
    with pytest.raises(ConversionError) as raised:
        await run_files(executor, job, limits)
    assert not job.output.exists()
    return raised.value


async def test_a_job_leaves_its_result(executor: LocalExecutor, tmp_path: Path) -> None:
    job = _job(tmp_path, "behave")

    done = await run_files(executor, job)

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
    await run_files(executor, _job(tmp_path, f"claim 8000 {size}"))
    error = await _failure(executor, _job(tmp_path, f"claim 8001 {size}"), JobLimits(memory=size // 2))
    assert error.reason == "out_of_memory"


async def test_cpu_time_is_limited() -> None:
    program = "from engine import sandbox; sandbox.limit_resources(seconds=0.5, output=1)\nwhile True: pass"

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == -signal.SIGXCPU


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

    await run_files(executor, job)
    error = await _failure(executor, job, JobLimits(output=1 << 20))

    assert (error.reason, str(error)) == ("engine_error", "The conversion failed: OSError.")
    assert not job.output.exists()


async def test_the_files_of_a_job_can_be_used_again(executor: LocalExecutor, tmp_path: Path) -> None:
    """A job depends neither on the position of a file nor on earlier content of the output."""
    job = _job(tmp_path, "behave")
    with job.inputs[0].open("r+b", buffering=0) as source, job.output.open("w+b", buffering=0) as output:
        output.write(bytes(1 << 20))
        for _ in range(2):
            source.seek(0, os.SEEK_END)
            done = await executor.run(job.job, [source.fileno()], output.fileno())
            assert os.fstat(output.fileno()).st_size == done.size

    assert job.output.read_bytes().startswith(b"\x89PNG")


async def test_jobs_cannot_write_to_their_inputs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("w+b", buffering=0) as file:
        file.write(b"before")
        with _reopen([file.fileno()]) as (descriptor,):
            assert os.read(descriptor, 100) == b"before"
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(descriptor, b"after")
            for change in (os.ftruncate, os.posix_fallocate):
                with pytest.raises(OSError, match=r"Invalid argument|Bad file descriptor"):
                    change(descriptor, *((0,) if change is os.ftruncate else (0, 9)))


async def test_files_that_cannot_be_opened(executor: LocalExecutor, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output, pytest.raises(ConversionError, match="cannot be opened"):
        await executor.run(Job(("png",), "jpeg"), [-1], output.fileno())


async def test_good_jobs_succeed_beside_bad_ones(executor: LocalExecutor, tmp_path: Path) -> None:
    """Twelve good jobs beside twelve that crash, hang or use up memory."""
    source = tmp_path / "good.png"
    source.write_bytes(sample("png"))
    deeds = ["crash", "hang", "eat", "exit"] * 2
    limits = JobLimits(seconds=1, memory=512 << 20)
    bad = [asyncio.create_task(_failure(executor, _job(tmp_path, deed), limits)) for deed in deeds]
    good = [
        run_files(executor, FileJob(Job(("png",), "jpeg"), [source], tmp_path / f"{number}.jpg"))
        for number in range(12)
    ]

    assert len(await asyncio.gather(*good)) == 12
    assert len(await asyncio.gather(*bad)) == len(deeds)


async def test_cancelling_kills_the_process(executor: LocalExecutor, tmp_path: Path) -> None:
    task = asyncio.create_task(run_files(executor, _job(tmp_path, "child")))
    await asyncio.sleep(0.5)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await _sleepers()


@_both_kinds
async def test_a_killed_idle_process_fails_at_most_one_job(
    executor: LocalExecutor, tmp_path: Path, *, lazy: bool
) -> None:
    for process in _pool(executor, lazy=lazy)._idle:
        os.kill(process.pid, signal.SIGKILL)
    outcomes = [run_files(executor, _job(tmp_path, f"behave{number}", lazy=lazy)) for number in range(6)]

    results = await asyncio.gather(*outcomes, return_exceptions=True)

    assert sum(isinstance(result, ConversionError) for result in results) <= 2
    await run_files(executor, _job(tmp_path, "behave", lazy=lazy))


def _serving(supervisor: int) -> int:
    """The serving process, by its supervisor."""
    return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text())


async def _recovered(executor: LocalExecutor, tmp_path: Path, *, lazy: bool) -> bool:
    """Whether jobs run again, at the latest when the idle processes are used up."""
    jobs = [run_files(executor, _job(tmp_path, f"behave{number}", lazy=lazy)) for number in range(6)]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(outcome, ConversionError) for outcome in outcomes if isinstance(outcome, BaseException))
    return sum(isinstance(outcome, JobResult) for outcome in outcomes) >= 4


def _folders(homes: Path) -> set[Path]:
    return set(homes.glob("*/*"))


async def _only_idle_processes_have_folders(executor: LocalExecutor, homes: Path) -> bool:
    """Waits for the last job's process to end."""
    for _ in range(500):
        idle = [*executor._light._idle, *executor._full._idle]
        if {process.folder for process in idle} == await asyncio.to_thread(_folders, homes):
            return True
        await asyncio.sleep(0.02)
    return False


@_both_kinds
async def test_a_fork_server_that_is_killed_is_forked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lazy: bool
) -> None:
    homes = tmp_path / "homes"
    homes.mkdir(mode=0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(homes))
    monkeypatch.syspath_prepend(MISBEHAVING)
    executor = LocalExecutor(2)
    await executor.start()
    try:
        forkserver = _pool(executor, lazy=lazy)._forkserver
        other = _pool(executor, lazy=not lazy)._forkserver._running
        assert forkserver._running is not None
        supervisor = forkserver._running[0]
        for _ in range(2):
            os.kill(_serving(supervisor.pid), signal.SIGKILL)
            assert await _recovered(executor, tmp_path, lazy=lazy)
            assert forkserver._running[0] is supervisor
            assert await _only_idle_processes_have_folders(executor, homes)
        serving = _serving(supervisor.pid)
        supervisor.kill()
        assert await _recovered(executor, tmp_path, lazy=lazy)
        os.kill(serving, signal.SIGKILL)
        assert await _recovered(executor, tmp_path, lazy=lazy)
        assert forkserver._running[0] is not supervisor
        assert _pool(executor, lazy=not lazy)._forkserver._running is other
    finally:
        await executor.close()
    assert not list(homes.iterdir())
