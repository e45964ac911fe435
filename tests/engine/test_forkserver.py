"""The fork server: recovery from its end and from hangs, and the end of the executor. Real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from engine import ConversionError
from engine.errors import ExecutorUnavailable
from engine.executor import JobResult, LocalExecutor, pool
from engine.executor.forkserver import ForkServer
from tests.support.executors.isolated import (
    has_ended,
    misbehaving,
    run_deed,
    run_files,
    trouble_job,
    worker_pool,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _folders(base: Path) -> set[Path]:
    return set(base.glob("*/*"))


def _serving(supervisor: int) -> int:
    """The serving process of a fork server."""
    return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text())


def _stop_forkserver(executor: LocalExecutor) -> subprocess.Popen[bytes]:
    """Stops both processes of the fork server. Returns its supervisor."""
    running = worker_pool(executor)._forkserver._running
    assert running is not None
    os.kill(_serving(running[0].pid), signal.SIGSTOP)
    os.kill(running[0].pid, signal.SIGSTOP)
    return running[0]


async def _started(executor: LocalExecutor, folder: Path) -> asyncio.Task[JobResult]:
    """Starts a job that has no end. Returns its task after it has used 0.1 s of CPU."""
    (spare,) = worker_pool(executor)._spares
    task = asyncio.create_task(run_files(executor, trouble_job(folder, "spin")))
    stat = Path(f"/proc/{spare.pid}/stat")
    for _ in range(500):
        if int((await asyncio.to_thread(stat.read_text)).rpartition(")")[2].split()[11]) >= 10:
            return task
        await asyncio.sleep(0.02)
    raise AssertionError("the job does not start")


async def _only_workers_have_folders(executor: LocalExecutor, base: Path) -> bool:
    """Waits for the processes that have ended to be removed."""
    for _ in range(500):
        processes = [*worker_pool(executor)._spares, *(worker.process for worker in worker_pool(executor)._idle)]
        if {process.folder for process in processes} == await asyncio.to_thread(_folders, base):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_fork_server_that_is_killed_costs_no_idle_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    async with misbehaving(2) as executor:
        forkserver = worker_pool(executor)._forkserver
        assert forkserver._running is not None
        supervisor = forkserver._running[0]
        for _ in range(2):
            before = await run_deed(executor, tmp_path)
            os.kill(_serving(supervisor.pid), signal.SIGKILL)
            for pid in before:
                assert await has_ended(pid)
            assert await run_deed(executor, tmp_path) != before
            assert forkserver._running[0] is supervisor
            assert await _only_workers_have_folders(executor, base)
        serving = _serving(supervisor.pid)
        supervisor.kill()
        before = await run_deed(executor, tmp_path)
        os.kill(serving, signal.SIGKILL)
        for pid in before:
            assert await has_ended(pid)
        for _ in range(100):
            await run_deed(executor, tmp_path)
            if forkserver._running and forkserver._running[0] is not supervisor:
                break
            await asyncio.sleep(0.05)
        assert forkserver._running[0] is not supervisor
    assert not list(base.iterdir())


async def test_a_fork_server_that_hangs_is_replaced(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        assert await executor.ready()
        running = worker_pool(executor)._forkserver._running
        assert running is not None
        serving = _serving(running[0].pid)
        os.kill(serving, signal.SIGSTOP)

        assert not await executor.ready()

        for _ in range(100):
            if await executor.ready():
                break
            await asyncio.sleep(0.2)
        assert await executor.ready()
        await run_deed(executor, tmp_path)
        assert await has_ended(serving)


async def test_a_fork_server_ignores_sigio(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        before = await run_deed(executor, tmp_path)
        running = worker_pool(executor)._forkserver._running
        assert running is not None
        for process in (_serving(running[0].pid), running[0].pid):
            os.kill(process, signal.SIGIO)
        await run_deed(executor, tmp_path, account="other")

        assert await run_deed(executor, tmp_path) == before
        assert running[0].poll() is None


async def test_a_job_does_not_wait_long_for_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SPARE_TIMEOUT", 0.3)
    async with misbehaving(1) as executor:
        _stop_forkserver(executor)
        await run_deed(executor, tmp_path, account="a")

        with pytest.raises(ExecutorUnavailable):
            await run_deed(executor, tmp_path, account="b")

        for _ in range(100):
            if await executor.ready():
                break
            await asyncio.sleep(0.2)
        await run_deed(executor, tmp_path, account="b")


async def test_a_job_that_is_killed_with_its_fork_server_is_not_the_cause(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        running = await _started(executor, tmp_path)
        forkserver = worker_pool(executor)._forkserver._running
        assert forkserver is not None
        os.killpg(forkserver[0].pid, signal.SIGKILL)
        with pytest.raises(ExecutorUnavailable):
            await asyncio.wait_for(running, 10)


async def test_closing_does_not_replace_a_fork_server_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with misbehaving(1) as executor:
        _stop_forkserver(executor)
        await run_deed(executor, tmp_path, account="a")
        pending = asyncio.create_task(run_deed(executor, tmp_path, account="b"))
        await asyncio.sleep(0.3)
        monkeypatch.delattr(ForkServer, "_start")
    with pytest.raises(ExecutorUnavailable):
        await pending


async def test_closing_does_not_wait_for_a_fork_server_that_hangs() -> None:
    async with misbehaving(1) as executor:
        running = _stop_forkserver(executor)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert running.returncode == -signal.SIGKILL


async def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        running = await _started(executor, tmp_path)
    with pytest.raises(ConversionError) as raised:
        await asyncio.wait_for(running, 10)
    assert raised.value.retryable
    assert worker_pool(executor)._forkserver._running is None


async def test_closing_does_not_wait_for_a_task_that_has_just_ended() -> None:
    """Its callbacks run later. Waiting without a pause for them would last for ever."""
    executor = LocalExecutor(1)
    task = worker_pool(executor)._spawn(asyncio.sleep(0))
    for _ in range(2):
        await asyncio.sleep(0)
    assert task.done()

    await executor.close()

    assert worker_pool(executor)._tasks == set()


async def test_a_fork_server_that_never_started_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    await LocalExecutor(1).close()

    assert (tmp_path / "file").exists()
