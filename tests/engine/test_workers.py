"""Worker processes: reuse for the same account, retirement, and recovery of the fork server. Real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from engine import ConversionError, StepFailed, sandbox
from engine.errors import ExecutorUnavailable
from engine.executor import Job, JobLimits, LocalExecutor, jobs, pool
from engine.executor.forkserver import ForkServer, WorkerProcess
from engine.executor.jobs import Request
from engine.executor.pool import WorkerPool
from tests.support.executors import ACCOUNT, FileJob, misbehaving, run_files

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    """One worker, with the misbehaving plugin."""
    async with misbehaving(1) as made:
        yield made


def _job(folder: Path, deed: str, *, isolated: bool = False) -> FileJob:
    source = folder / f"{deed}.trouble"
    source.write_bytes(b"TROUBLE " + deed.encode())
    return FileJob(Job(("trouble",), "png", isolated=isolated), [source], folder / f"{deed}.out")


def _pool(executor: LocalExecutor) -> WorkerPool:
    return executor._pool


def _idle(executor: LocalExecutor, account: str = ACCOUNT) -> list[int]:
    """The process IDs of an account's idle workers."""
    return [worker.process.pid for worker in _pool(executor)._idle if worker.account == account]


async def _run(executor: LocalExecutor, folder: Path, deed: str = "behave", account: str = ACCOUNT) -> list[int]:
    """Runs a job. Returns the account's idle workers afterwards."""
    await run_files(executor, _job(folder, deed), account=account)
    return _idle(executor, account)


async def _has_ended(pid: int) -> bool:
    process = Path(f"/proc/{pid}")
    for _ in range(100):
        if not await asyncio.to_thread(process.exists):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_jobs_of_an_account_share_a_process(executor: LocalExecutor, tmp_path: Path) -> None:
    first = await _run(executor, tmp_path)
    assert len(first) == 1
    for _ in range(3):
        assert await _run(executor, tmp_path) == first


async def test_jobs_of_two_accounts_never_share_a_process(executor: LocalExecutor, tmp_path: Path) -> None:
    used: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    for _ in range(3):
        for account, pids in used.items():
            pids.update(await _run(executor, tmp_path, account=account))

    assert [len(pids) for pids in used.values()] == [1, 1, 1]
    assert len(set.union(*used.values())) == 3


async def test_a_worker_refuses_a_job_of_another_account(executor: LocalExecutor) -> None:
    loop = asyncio.get_running_loop()
    async with _pool(executor).worker("a", isolated=True) as worker:
        connection = worker.process.connection
        replies = []
        for account in ("a", "b"):
            request = Request(account, JobLimits(), False, ("png",), "no such format")
            socket.send_fds(connection, [request.encode()], [])
            replies.append(await loop.sock_recv(connection, jobs.MAX_MESSAGE))
        assert await loop.sock_recv(connection, 1) == b""

    for reply, message in zip(replies, ("no such format", "belongs to another account"), strict=True):
        with pytest.raises(ConversionError, match=message):
            jobs.parse_result(reply)


async def test_a_request_that_is_too_long_is_an_error(executor: LocalExecutor, tmp_path: Path) -> None:
    file_job = _job(tmp_path, "behave")
    file_job = file_job._replace(job=replace(file_job.job, tool="x" * jobs.MAX_MESSAGE))

    with pytest.raises(StepFailed, match="too long"):
        await run_files(executor, file_job)

    assert not file_job.output.exists()


async def test_a_reply_that_is_too_long_becomes_an_error(executor: LocalExecutor, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="too long"):
        await run_files(executor, _job(tmp_path, f"warn {jobs.MAX_MESSAGE}"))


@pytest.mark.parametrize(
    "deed",
    [
        *("leave_file", "leave_thread", "leave_descriptor", "change_environment", "change_folder", "grow"),
        *("raise", "crash", "exit"),
    ],
)
async def test_a_job_that_fails_or_changes_its_process_ends_it(
    executor: LocalExecutor, tmp_path: Path, deed: str
) -> None:
    before = await _run(executor, tmp_path)

    try:
        assert not await _run(executor, tmp_path, deed)
    except ConversionError:
        assert deed in ("raise", "crash", "exit")

    assert not _idle(executor)
    assert await _has_ended(before[0])
    assert await _run(executor, tmp_path) != before


@pytest.mark.parametrize("deed", ["leave_child", "leave_orphan"])
async def test_a_job_that_leaves_a_child_ends_its_process(tmp_path: Path, deed: str) -> None:
    async with misbehaving(1, sandbox.ALWAYS) as unconfined:
        before = await _run(unconfined, tmp_path)
        assert before
        assert not await _run(unconfined, tmp_path, deed)
        assert await _has_ended(before[0])


async def test_an_isolated_job_gets_a_new_process_that_ends(executor: LocalExecutor, tmp_path: Path) -> None:
    before = await _run(executor, tmp_path)
    spares = {process.pid for process in _pool(executor)._spares}

    async with _pool(executor).worker(ACCOUNT, isolated=True) as worker:
        assert worker.process.pid not in before
        assert worker.final
    await run_files(executor, _job(tmp_path, "behave", isolated=True))

    assert _idle(executor) == before
    for pid in spares:
        assert await _has_ended(pid)


@pytest.mark.parametrize(("limit", "expected"), [(1, [0, 0, 0]), (2, [1, 0, 1])])
async def test_a_process_runs_a_limited_number_of_jobs(tmp_path: Path, limit: int, expected: list[int]) -> None:
    async with misbehaving(1, jobs_per_process=limit) as limited:
        assert [len(await _run(limited, tmp_path)) for _ in range(3)] == expected


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "MAX_AGE"])
async def test_idle_workers_are_retired_in_time(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(pool, limit, 0.3)
    (pid,) = await _run(executor, tmp_path, account=limit)

    assert await _has_ended(pid)
    assert not _idle(executor, limit)


async def test_a_worker_is_retired_after_a_job_that_ends_beyond_its_age(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_AGE", 0.0)

    assert not await _run(executor, tmp_path, account="old")


async def test_the_least_recently_used_worker_makes_room(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_IDLE", 2)
    for account in ("x", "y", "x", "z"):
        await _run(executor, tmp_path, account=account)

    assert [worker.account for worker in _pool(executor)._idle] == ["x", "z"]


async def test_the_memory_limit_applies_to_each_job_of_a_process(executor: LocalExecutor, tmp_path: Path) -> None:
    size = 640 * _MIB
    before = await _run(executor, tmp_path)

    await run_files(executor, _job(tmp_path, f"claim 8000 {size}"))
    assert _idle(executor) == before
    with pytest.raises(ConversionError) as raised:
        await run_files(executor, _job(tmp_path, f"claim 8 {size}"))

    assert raised.value.reason == "out_of_memory"
    assert not _idle(executor)


async def test_a_killed_idle_worker_costs_no_job(executor: LocalExecutor, tmp_path: Path) -> None:
    for _ in range(5):
        for pid in [*await _run(executor, tmp_path), *(process.pid for process in _pool(executor)._spares)]:
            os.kill(pid, signal.SIGKILL)
        await run_files(executor, _job(tmp_path, "behave"))


async def test_a_worker_that_ends_before_it_starts_a_job_costs_no_job(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stopped,) = await _run(executor, tmp_path)
    monkeypatch.setattr(WorkerProcess, "resume", lambda process: None)
    running = asyncio.create_task(run_files(executor, _job(tmp_path, "behave")))
    await asyncio.sleep(0.2)

    os.kill(stopped, signal.SIGKILL)

    await running
    assert stopped not in _idle(executor)


async def test_idle_workers_are_stopped(executor: LocalExecutor, tmp_path: Path) -> None:
    (pid,) = await _run(executor, tmp_path)
    state = Path(f"/proc/{pid}/stat")

    for _ in range(100):
        if (await asyncio.to_thread(state.read_text)).rpartition(")")[2].split()[0] == "T":
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the worker runs")


async def test_jobs_yield_to_the_server(executor: LocalExecutor, tmp_path: Path) -> None:
    (pid,) = await _run(executor, tmp_path)

    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0) + 5
    # A session of its own would be a scheduling group at the server's priority.
    session = os.getsid(pid)
    assert session not in (pid, os.getsid(0))
    # Without sched_autogroup the kernel has no such groups, and no file.
    assert _autogroup(pid) == _autogroup(session)
    assert _autogroup(pid)[-6:] in ("nice 5", "")


def _autogroup(pid: int) -> str:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/autogroup").read_text().rstrip()
    return ""


async def test_a_large_picture_leaves_its_worker_small(tmp_path: Path) -> None:
    source = tmp_path / "in.jpg"
    Image.effect_noise((4000, 3000), 10).convert("RGB").save(source)
    async with misbehaving(1) as executor:
        pids = []
        for _ in range(2):
            await run_files(executor, FileJob(Job(("jpeg",), "webp", isolated=False), [source], tmp_path / "out"))
            pids += _idle(executor)

    assert len(pids) == 2
    assert pids[0] == pids[1]


async def test_cancelling_kills_a_reused_process(executor: LocalExecutor, tmp_path: Path) -> None:
    (pid,) = await _run(executor, tmp_path)
    running = asyncio.create_task(run_files(executor, _job(tmp_path, "hang")))
    await asyncio.sleep(0.3)
    assert not _idle(executor)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert await _has_ended(pid)


def _folders(base: Path) -> set[Path]:
    return set(base.glob("*/*"))


def _serving(supervisor: int) -> int:
    """The serving process of a fork server."""
    return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text())


def _stop_forkserver(executor: LocalExecutor) -> subprocess.Popen[bytes]:
    """Stops both processes of the fork server. Returns its supervisor."""
    running = _pool(executor)._forkserver._running
    assert running is not None
    os.kill(_serving(running[0].pid), signal.SIGSTOP)
    os.kill(running[0].pid, signal.SIGSTOP)
    return running[0]


async def _only_workers_have_folders(executor: LocalExecutor, base: Path) -> bool:
    """Waits for the processes that have ended to be removed."""
    for _ in range(500):
        processes = [*_pool(executor)._spares, *(worker.process for worker in _pool(executor)._idle)]
        if {process.folder for process in processes} == await asyncio.to_thread(_folders, base):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_fork_server_that_is_killed_costs_no_idle_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    async with misbehaving(2) as executor:
        forkserver = _pool(executor)._forkserver
        assert forkserver._running is not None
        supervisor = forkserver._running[0]
        for _ in range(2):
            before = await _run(executor, tmp_path)
            os.kill(_serving(supervisor.pid), signal.SIGKILL)
            for pid in before:
                assert await _has_ended(pid)
            assert await _run(executor, tmp_path) != before
            assert forkserver._running[0] is supervisor
            assert await _only_workers_have_folders(executor, base)
        serving = _serving(supervisor.pid)
        supervisor.kill()
        await _run(executor, tmp_path)
        os.kill(serving, signal.SIGKILL)
        for _ in range(100):
            await _run(executor, tmp_path)
            if forkserver._running and forkserver._running[0] is not supervisor:
                break
            await asyncio.sleep(0.05)
        assert forkserver._running[0] is not supervisor
    assert not list(base.iterdir())


async def test_a_fork_server_that_hangs_is_replaced(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        assert await executor.ready()
        running = _pool(executor)._forkserver._running
        assert running is not None
        serving = _serving(running[0].pid)
        os.kill(serving, signal.SIGSTOP)

        assert not await executor.ready()

        for _ in range(100):
            if await executor.ready():
                break
            await asyncio.sleep(0.2)
        assert await executor.ready()
        await _run(executor, tmp_path)
        assert await _has_ended(serving)


async def test_a_job_does_not_wait_long_for_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SPARE_TIMEOUT", 0.3)
    async with misbehaving(1) as executor:
        _stop_forkserver(executor)
        await _run(executor, tmp_path, account="a")

        with pytest.raises(ExecutorUnavailable):
            await _run(executor, tmp_path, account="b")

        for _ in range(100):
            if await executor.ready():
                break
            await asyncio.sleep(0.2)
        await _run(executor, tmp_path, account="b")


async def test_a_job_that_is_killed_with_its_fork_server_is_not_the_cause(tmp_path: Path) -> None:
    async with misbehaving(1) as executor:
        running = asyncio.create_task(run_files(executor, _job(tmp_path, "hang")))
        await asyncio.sleep(0.3)
        forkserver = _pool(executor)._forkserver._running
        assert forkserver is not None
        os.killpg(forkserver[0].pid, signal.SIGKILL)
        with pytest.raises(ExecutorUnavailable):
            await asyncio.wait_for(running, 10)


async def test_closing_does_not_replace_a_fork_server_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with misbehaving(1) as executor:
        _stop_forkserver(executor)
        await _run(executor, tmp_path, account="a")
        pending = asyncio.create_task(_run(executor, tmp_path, account="b"))
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
        running = asyncio.create_task(run_files(executor, _job(tmp_path, "hang")))
        await asyncio.sleep(0.3)
    with pytest.raises(ConversionError) as raised:
        await asyncio.wait_for(running, 10)
    assert raised.value.retryable
    assert _pool(executor)._forkserver._running is None


async def test_a_fork_server_that_never_started_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    await LocalExecutor(1).close()

    assert (tmp_path / "file").exists()
