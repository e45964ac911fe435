"""Worker processes: reuse for the same account, and retirement. Real processes."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from engine import ConversionError, StepFailed, sandbox
from engine.executor import Task, TaskLimits, local, pool, tasks
from engine.executor.tasks import Request
from engine.executor.worker_process import WorkerProcess
from tests.support.executors.isolated import (
    ACCOUNT,
    FileJob,
    ObservedExecutor,
    has_ended,
    idle_workers,
    misbehaving,
    run_deed,
    run_files,
    trouble_job,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[ObservedExecutor]:
    """One worker, with the misbehaving plugin."""
    async with misbehaving(1) as made:
        yield made


async def test_jobs_of_an_account_share_a_process(executor: ObservedExecutor, tmp_path: Path) -> None:
    first = await run_deed(executor, tmp_path)
    assert len(first) == 1
    for _ in range(3):
        assert await run_deed(executor, tmp_path) == first


async def test_jobs_of_two_accounts_never_share_a_process(executor: ObservedExecutor, tmp_path: Path) -> None:
    used: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    for _ in range(3):
        for account, pids in used.items():
            pids.update(await run_deed(executor, tmp_path, account=account))

    assert [len(pids) for pids in used.values()] == [1, 1, 1]
    assert len(set.union(*used.values())) == 3


async def test_a_worker_refuses_a_job_of_another_account(executor: ObservedExecutor) -> None:
    loop = asyncio.get_running_loop()
    async with executor.pool.worker("a", own_process=True) as worker:
        connection = worker.process.connection
        replies = []
        for account in ("a", "b"):
            request = Request(account, TaskLimits(), False, Task(("png",), "no such format"))
            socket.send_fds(connection, [request.encode()], [])
            replies.append(await loop.sock_recv(connection, tasks.MAX_MESSAGE))
        async with asyncio.timeout(20):
            assert await loop.sock_recv(connection, 1) == b""

    for reply, message in zip(replies, ("no such format", "belongs to another account"), strict=True):
        with pytest.raises(ConversionError, match=message):
            tasks.parse_result(reply)


async def test_a_request_that_is_too_long_is_an_error(executor: ObservedExecutor, tmp_path: Path) -> None:
    file_job = trouble_job(tmp_path, "behave")
    file_job = file_job._replace(job=replace(file_job.job, tool="x" * tasks.MAX_MESSAGE))

    with pytest.raises(StepFailed, match="too long"):
        await run_files(executor, file_job)

    assert not file_job.output.exists()


async def test_a_reply_that_is_too_long_becomes_an_error(executor: ObservedExecutor, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="too long"):
        await run_files(executor, trouble_job(tmp_path, f"warn {tasks.MAX_MESSAGE}"))


@pytest.mark.parametrize(
    "deed",
    [
        *("leave_file", "leave_thread", "leave_descriptor", "change_environment", "change_folder", "grow"),
        "grow_in_disguise",
        *("raise", "crash", "exit"),
    ],
)
async def test_failing_or_changing_jobs_end_their_process(
    executor: ObservedExecutor, tmp_path: Path, deed: str
) -> None:
    before = await run_deed(executor, tmp_path)

    try:
        await run_deed(executor, tmp_path, deed)
    except ConversionError:
        assert deed in ("raise", "crash", "exit")

    assert await has_ended(before[0])
    assert not idle_workers(executor)
    assert await run_deed(executor, tmp_path) != before


@pytest.mark.parametrize("deed", ["leave_child", "leave_orphan"])
async def test_a_job_that_leaves_a_child_ends_both_processes(tmp_path: Path, deed: str) -> None:
    async with misbehaving(1, sandbox.ALWAYS) as unconfined:
        (before,) = await run_deed(unconfined, tmp_path)
        folder = unconfined.pool.idle[0].process.folder
        assert _processes_in(folder) == [before]
        assert not await run_deed(unconfined, tmp_path, deed)
        for pid in (before, *_processes_in(folder)):
            assert await has_ended(pid)


def _processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is the folder, even if it is deleted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str((process / "cwd").readlink()).removesuffix(" (deleted)") == str(folder):
                found.append(int(process.name))
    return found


async def test_an_isolated_job_gets_a_new_process_that_ends(executor: ObservedExecutor, tmp_path: Path) -> None:
    before = await run_deed(executor, tmp_path)
    spares = {process.pid for process in executor.pool.spares[""]}

    async with executor.pool.worker(ACCOUNT, own_process=True) as worker:
        assert worker.process.pid not in before
        assert worker.final
    await run_files(executor, trouble_job(tmp_path, "behave", isolated=True))

    assert idle_workers(executor) == before
    for pid in spares:
        assert await has_ended(pid)


@pytest.mark.parametrize(("limit", "expected"), [(1, [0, 0, 0]), (2, [1, 0, 1])])
async def test_a_process_runs_a_limited_number_of_jobs(tmp_path: Path, limit: int, expected: list[int]) -> None:
    async with misbehaving(1, jobs_per_process=limit) as limited:
        assert [len(await run_deed(limited, tmp_path)) for _ in range(3)] == expected


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "MAX_AGE"])
async def test_idle_workers_are_retired_in_time(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    (pid,) = await run_deed(executor, tmp_path, account=limit)
    # The job itself takes longer than this on a busy machine.
    monkeypatch.setattr(pool, limit, 0.3)

    assert await has_ended(pid)
    assert not idle_workers(executor, limit)


async def test_a_worker_is_retired_after_a_job_that_ends_beyond_its_age(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_AGE", 0.0)

    assert not await run_deed(executor, tmp_path, account="old")


async def test_the_least_recently_used_worker_makes_room(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_WORKERS", 2)
    for account in ("x", "y", "x", "z"):
        await run_deed(executor, tmp_path, account=account)

    assert [worker.account for worker in executor.pool.idle] == ["x", "z"]


async def test_the_memory_limit_applies_to_each_job_of_a_process(executor: ObservedExecutor, tmp_path: Path) -> None:
    size = 640 * _MIB
    before = await run_deed(executor, tmp_path)

    await run_files(executor, trouble_job(tmp_path, f"claim 8000 {size}"))
    assert idle_workers(executor) == before
    with pytest.raises(ConversionError) as raised:
        await run_files(executor, trouble_job(tmp_path, f"claim 8 {size}"))

    assert raised.value.reason == "out_of_memory"
    assert not idle_workers(executor)


async def test_a_killed_idle_worker_costs_no_job(executor: ObservedExecutor, tmp_path: Path) -> None:
    for _ in range(5):
        for pid in [*await run_deed(executor, tmp_path), *(process.pid for process in executor.pool.spares[""])]:
            os.kill(pid, signal.SIGKILL)
        await run_files(executor, trouble_job(tmp_path, "behave"))


async def test_a_worker_that_ends_before_it_starts_a_job_costs_no_job(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "UNEXAMINED_JOBS", 1)  # stopped at once
    (stopped,) = await run_deed(executor, tmp_path)
    monkeypatch.setattr(WorkerProcess, "resume", lambda process: None)
    running = asyncio.create_task(run_files(executor, trouble_job(tmp_path, "behave")))
    await asyncio.sleep(0.2)

    os.kill(stopped, signal.SIGKILL)

    await running
    assert stopped not in idle_workers(executor)


async def test_idle_workers_are_stopped(executor: ObservedExecutor, tmp_path: Path) -> None:
    (pid,) = await run_deed(executor, tmp_path)
    state = Path(f"/proc/{pid}/stat")

    for _ in range(100):
        if (await asyncio.to_thread(state.read_text)).rpartition(")")[2].split()[0] == "T":
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the worker runs")


async def test_a_worker_whose_jobs_follow_at_once_is_not_stopped(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PAUSE", 60.0)
    await run_deed(executor, tmp_path)
    assert not executor.pool.idle[-1].stopped

    monkeypatch.setattr(pool, "UNEXAMINED_JOBS", 1)
    await run_deed(executor, tmp_path)
    assert executor.pool.idle[-1].stopped
    assert not await run_deed(executor, tmp_path, "leave_file")


async def test_a_worker_that_has_grown_takes_the_place_of_several(
    executor: ObservedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_WORKERS", 6)
    monkeypatch.setattr(pool, "UNEXAMINED_JOBS", 1)
    for account in ("v", "x", "y"):
        await run_deed(executor, tmp_path, account=account)
    await run_deed(executor, tmp_path, "grow_a_little", account="large")

    assert [worker.account for worker in executor.pool.idle] == ["y", "large"]


async def test_jobs_yield_to_the_server(executor: ObservedExecutor, tmp_path: Path) -> None:
    (pid,) = await run_deed(executor, tmp_path)

    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0) + 5
    # A session of its own would be a scheduling group at the server's priority.
    session = os.getsid(pid)
    assert session not in (pid, os.getsid(0))
    # Without sched_autogroup the kernel has no such groups, and no file.
    assert _autogroup(pid) == _autogroup(session)
    assert _autogroup(pid)[-6:] in ("nice 5", "")


async def test_the_kernel_has_the_restrictions_of_a_worker(executor: ObservedExecutor, tmp_path: Path) -> None:
    (pid,) = await run_deed(executor, tmp_path)
    lines = (line.partition(":") for line in _told_by_kernel(pid, "status").splitlines())
    status = {name: value.strip() for name, _, value in lines}

    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, 0, 0, 0]
    assert (status["NoNewPrivs"], status["Seccomp"], status["Umask"]) == ("1", "2", "0077")
    assert os.geteuid() or status["Groups"] == ""
    assert [_hard_limit(pid, name) for name in ("core file size", "open files")] == ["0", "256"]
    assert "unlimited" not in (_hard_limit(pid, "address space"), _hard_limit(pid, "file size"))
    assert _told_by_kernel(pid, "oom_score_adj") == "500\n"


def _told_by_kernel(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _hard_limit(pid: int, name: str) -> str:
    found = re.search(rf"^Max {name} +\S+ +(\S+)", _told_by_kernel(pid, "limits"), re.MULTILINE)
    assert found
    return found[1]


def _autogroup(pid: int) -> str:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/autogroup").read_text().rstrip()
    return ""


async def test_a_large_image_leaves_its_worker_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LONG", 10.0)  # a long task would end its process, and on a busy machine this is one
    source = tmp_path / "in.png"
    Image.new("RGB", (4000, 3000)).save(source)
    async with misbehaving(1) as executor:
        pids = []
        for _ in range(2):
            await run_files(executor, FileJob(Task(("png",), "bmp", own_process=False), [source], tmp_path / "out"))
            pids += idle_workers(executor)

    assert len(pids) == 2
    assert pids[0] == pids[1]


async def test_a_long_job_has_low_priority_and_ends_its_worker(executor: ObservedExecutor, tmp_path: Path) -> None:
    (worker,) = await run_deed(executor, tmp_path)

    running = asyncio.create_task(run_deed(executor, tmp_path, "compute 1"))
    async with asyncio.timeout(20):
        while os.getpriority(os.PRIO_PROCESS, worker) != sandbox.LOW_PRIORITY:  # noqa: ASYNC110, a process changes it
            await asyncio.sleep(0.02)

    assert await running == []
