"""The fork server: recovery from its end and from hangs, and the end of the executor. Real processes."""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from engine import ConversionError
from engine.errors import ExecutorUnavailable
from engine.executor import LocalExecutor, TaskResult, forkserver, pool
from tests.support.executors.isolated import (
    ObservedExecutor,
    has_ended,
    misbehaving,
    run_deed,
    run_files,
    trouble_job,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _folders(base: Path) -> set[Path]:
    return set(base.glob("*/*/*"))


def _supervisor(executor: ObservedExecutor) -> int:
    """The process ID of the supervisor of the running fork server."""
    assert executor.forkserver.pid is not None
    return executor.forkserver.pid


def _stop_forkserver(executor: ObservedExecutor) -> int:
    """Stops the fork server. Returns the process ID of its supervisor."""
    supervisor = _supervisor(executor)
    os.kill(supervisor, signal.SIGSTOP)
    return supervisor


async def _started(executor: ObservedExecutor, folder: Path) -> asyncio.Task[TaskResult]:
    """Starts a job that has no end. Returns its task after it has used 0.1 s of CPU."""
    (spare,) = executor.pool.spares[""]
    task = asyncio.create_task(run_files(executor, trouble_job(folder, "spin")))
    stat = Path(f"/proc/{spare.pid}/stat")
    for _ in range(500):
        if int((await asyncio.to_thread(stat.read_text)).rpartition(")")[2].split()[11]) >= 10:
            return task
        await asyncio.sleep(0.02)
    raise AssertionError("the job does not start")


async def _only_workers_have_folders(executor: ObservedExecutor, base: Path) -> bool:
    """Waits for the processes that have ended to be removed."""
    for _ in range(500):
        processes = [*executor.pool.spares[""], *(worker.process for worker in executor.pool.idle)]
        if {process.folder for process in processes} == await asyncio.to_thread(_folders, base):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_fork_server_that_is_killed_costs_no_idle_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    async with misbehaving(2) as executor:
        for _ in range(2):
            supervisor = _supervisor(executor)
            before = await run_deed(executor, tmp_path)
            os.kill(supervisor, signal.SIGKILL)
            for pid in before:
                assert await has_ended(pid)
            assert await run_deed(executor, tmp_path) != before
            assert executor.forkserver.pid not in (None, supervisor)
            assert await _only_workers_have_folders(executor, base)
    assert not list(base.iterdir())


async def test_a_fork_server_that_hangs_is_replaced(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        serving = _stop_forkserver(executor)
        assert await executor.ready()  # a spare waits

        await run_deed(executor, tmp_path, account="a")

        assert await executor.ready()  # when the next one does
        await run_deed(executor, tmp_path, account="b")
        assert await has_ended(serving)


async def test_an_executor_that_cannot_fork_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with misbehaving(1) as executor:
        monkeypatch.setattr(forkserver, "PROGRAM", "raise SystemExit")
        os.killpg(_supervisor(executor), signal.SIGKILL)
        for _ in range(100):  # the spare ends soon
            if not await executor.ready():
                break
            await asyncio.sleep(0.05)
        assert not await executor.ready()


async def _run_in_turn(executor: ObservedExecutor, folder: Path, accounts: str) -> None:
    for account in accounts:
        await run_deed(executor, folder, account=account)


async def test_a_template_that_cannot_fork_keeps_its_workers(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        (before,) = await run_deed(executor, tmp_path)
        (worker,) = executor.pool.idle
        template, base = _supervisor(executor), worker.process.folder.parent
        for number in range(3, 40):  # folders that the template cannot make
            (base / str(number)).mkdir(exist_ok=True)

        with pytest.raises(ExecutorUnavailable):
            await _run_in_turn(executor, tmp_path, "abc")  # two spares can have been forked

        assert _supervisor(executor) == template
        assert await run_deed(executor, tmp_path) == [before]


async def test_a_fork_server_ignores_sigio(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        before = await run_deed(executor, tmp_path)
        supervisor = _supervisor(executor)
        os.kill(supervisor, signal.SIGIO)
        await run_deed(executor, tmp_path, account="other")

        assert await run_deed(executor, tmp_path) == before
        assert executor.forkserver.pid == supervisor


async def test_a_job_does_not_wait_long_for_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SPARE_TIMEOUT", 0.3)
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
        os.killpg(_supervisor(executor), signal.SIGKILL)
        with pytest.raises(ExecutorUnavailable):
            await asyncio.wait_for(running, 10)


async def test_closing_does_not_replace_a_hanging_fork_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with misbehaving(1) as executor:
        _stop_forkserver(executor)
        await run_deed(executor, tmp_path, account="a")
        pending = asyncio.create_task(run_deed(executor, tmp_path, account="b"))
        await asyncio.sleep(0.3)
        monkeypatch.delattr("engine.executor.forkserver.BaseFolder")  # without it, no fork server can start
    with pytest.raises(ExecutorUnavailable):
        await pending


async def test_closing_does_not_wait_for_a_fork_server_that_hangs() -> None:
    async with misbehaving(1) as executor:
        supervisor = _stop_forkserver(executor)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert await has_ended(supervisor)


async def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        running = await _started(executor, tmp_path)
    with pytest.raises(ConversionError) as raised:
        await asyncio.wait_for(running, 10)
    assert raised.value.retryable
    assert executor.forkserver.pid is None


async def test_a_fork_server_never_started_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    await LocalExecutor(1).close()

    assert (tmp_path / "file").exists()
