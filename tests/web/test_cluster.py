"""Jobs on the workers of a cluster: their files, errors, placement, cancellation, and the loss of each part."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio
from distributed.comm.core import FatalCommClosedError

from engine.errors import CorruptInput, ExecutorUnavailable, WorkerCrashed
from engine.executor import Job, JobLimits, JobResult
from tests.support.cluster import (
    MEMORY,
    Cluster,
    SchedulerProcess,
    ScriptedExecutor,
    cluster_at,
    running_cluster,
    until,
)
from web.cluster.connection import failure_cause
from web.cluster.executor import ClusterExecutor
from web.cluster.jobs import MAX_INLINE, Installation
from web.cluster.worker import WrongInstallation

OTHER = Installation("0.9.0", "catalogue", "store")


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster without workers."""
    async with running_cluster(tmp_path) as running:
        yield running


async def run(
    executor: ClusterExecutor,
    deed: str = "copy",
    content: bytes = b"picture",
    account: str = "account",
    memory: int = 0,
) -> bytes:
    """Runs a job with this deed. Returns its output."""
    source, target = os.memfd_create("source"), os.memfd_create("target")
    try:
        os.write(source, content)
        job = Job(("png",), "webp", name=deed, memory=memory)
        result: JobResult = await executor.run(job, account, [source], target, JobLimits())
        assert result.size == os.fstat(target).st_size
        return os.pread(target, result.size, 0)
    finally:
        os.close(source)
        os.close(target)


@pytest.mark.parametrize("size", [1, MAX_INLINE, MAX_INLINE + 1, 3 * MAX_INLINE])
async def test_files_of_a_job(cluster: Cluster, size: int) -> None:
    """Small files are part of messages. Large ones are deleted from the blob store after the job."""
    await cluster.worker()
    executor = await cluster.executor(1)
    content = os.urandom(size)

    assert await run(executor, content=content) == content
    await until(lambda: not cluster.stored())


async def test_the_error_of_a_job(cluster: Cluster) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    with pytest.raises(CorruptInput, match="The file is damaged") as raised:
        await run(executor, "fail", b"x" * (MAX_INLINE + 1))

    assert raised.value.details == {"step": "png"}
    await until(lambda: not cluster.stored())


async def test_a_cancelled_job_ends_on_its_worker(cluster: Cluster) -> None:
    worker = await cluster.worker()
    executor = await cluster.executor(1)
    job = asyncio.create_task(run(executor, "sleep 60"))
    await until(lambda: worker.running == 1)

    job.cancel()

    with pytest.raises(asyncio.CancelledError):
        await job
    await until(lambda: worker.cancelled == 1)
    assert await run(executor) == b"picture"


async def test_jobs_of_a_server_that_disconnects_end(cluster: Cluster) -> None:
    worker = await cluster.worker()
    executor = await cluster.executor(1)
    job = asyncio.create_task(run(executor, "sleep 60"))
    await until(lambda: worker.running == 1)

    await executor.close()

    await until(lambda: worker.cancelled == 1)
    with pytest.raises(ExecutorUnavailable):
        await job


async def test_jobs_start_within_the_memory_of_a_worker(cluster: Cluster) -> None:
    worker = await cluster.worker(jobs=4)
    executor = await cluster.executor(1)

    await asyncio.gather(*(run(executor, "sleep 0.1", memory=MEMORY // 2 + 1) for _ in range(3)))
    assert worker.most_running == 1

    await asyncio.gather(*(run(executor, "sleep 0.1", memory=MEMORY // 2) for _ in range(3)))
    assert worker.most_running == 2


async def test_a_job_larger_than_all_workers_runs_alone(cluster: Cluster) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    assert await run(executor, memory=10 * MEMORY) == b"picture"


async def test_jobs_of_an_account_prefer_one_worker(cluster: Cluster) -> None:
    """All servers prefer the same one, whose process of the account is idle."""
    workers = [await cluster.worker(), await cluster.worker()]
    executors = [await cluster.executor(2), await cluster.executor(2)]

    for account in "abcdefgh":
        for executor in executors:
            assert await run(executor, account=account) == b"picture"

    assert all(sum(worker.jobs[account] > 0 for worker in workers) == 1 for account in "abcdefgh")
    assert all(worker.jobs for worker in workers)


async def test_an_account_uses_all_workers(cluster: Cluster) -> None:
    workers = [await cluster.worker(), await cluster.worker()]
    executor = await cluster.executor(2)

    await asyncio.gather(*(run(executor, "sleep 0.3") for _ in range(4)))

    assert [worker.most_running for worker in workers] == [2, 2]


async def test_jobs_of_killed_workers_run_again(cluster: Cluster) -> None:
    processes = [await cluster.process(), await cluster.process()]
    executor = await cluster.executor(2)
    jobs = [asyncio.create_task(run(executor, "wait", bytes([number]))) for number in range(4)]
    await until(lambda: cluster.started() == 4)

    processes[0].kill()
    cluster.release()

    assert await asyncio.gather(*jobs) == [bytes([number]) for number in range(4)]
    assert executor.state().retries == 2


async def test_a_job_that_kills_workers_fails_alone(cluster: Cluster) -> None:
    """The other jobs of the killed workers run again."""
    for _ in range(4):
        await cluster.process()
    executor = await cluster.executor(4)
    others = [asyncio.create_task(run(executor, "wait", bytes([number]))) for number in range(7)]
    await until(lambda: cluster.started() == 7)

    deadly = asyncio.create_task(run(executor, "die"))
    await until(lambda: cluster.started() == 8)
    cluster.release()

    with pytest.raises(WorkerCrashed):
        await deadly
    assert await asyncio.gather(*others) == [bytes([number]) for number in range(7)]
    assert executor.state().retries > 2  # two of them of the job itself


async def test_a_worker_ends_its_jobs_before_it_stops(cluster: Cluster) -> None:
    process = await cluster.process()
    executor = await cluster.executor(1)
    draining = {*executor._connection.workers}
    job = asyncio.create_task(run(executor, "wait"))
    await until(lambda: cluster.started() == 1)

    process.terminate()
    await until(lambda: cluster.joined() == 0)
    worker = await cluster.worker()
    await until(lambda: bool(executor._connection.workers) and not draining & {*executor._connection.workers})

    assert await run(executor, account="other") == b"picture"
    assert worker.jobs == {"other": 1}
    cluster.release()
    assert await job == b"picture"
    assert await process.wait() == 0
    assert executor.state().retries == 0


async def test_the_last_worker_ends_its_jobs_before_it_stops(cluster: Cluster) -> None:
    process = await cluster.process(jobs=1)
    executor = await cluster.executor(1)
    jobs = [asyncio.create_task(run(executor, "wait")) for _ in range(2)]
    await until(lambda: cluster.started() == 1)

    process.terminate()
    await until(lambda: cluster.joined() == 0)
    cluster.release()

    # Which of them has started is open.
    unavailable, finished = sorted(
        await asyncio.gather(*jobs, return_exceptions=True), key=lambda each: each == b"picture"
    )
    assert finished == b"picture"
    assert isinstance(unavailable, ExecutorUnavailable)
    assert await process.wait() == 0


async def test_a_worker_of_another_installation_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    with pytest.raises(WrongInstallation, match=r"another version than this worker: 1\.0\.0, not 0\.9\.0"):
        await cluster.run_worker(ScriptedExecutor(tmp_path), asyncio.Event(), installation=OTHER)

    assert await run(executor) == b"picture"


async def test_a_worker_without_the_blob_store_waits_for_it(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "blobs").rename(tmp_path / "gone")
    stop = asyncio.Event()
    worker = asyncio.create_task(cluster.run_worker(ScriptedExecutor(tmp_path), stop))
    await until(lambda: "check CONVERTD_BLOB_URL" in caplog.text)
    assert cluster.joined() == 0

    (tmp_path / "gone").rename(tmp_path / "blobs")

    await until(lambda: cluster.joined() == 1)
    stop.set()
    await worker


async def test_jobs_never_run_on_another_installation(cluster: Cluster) -> None:
    """The worker joined first."""
    worker = await cluster.worker(installation=OTHER)
    executor = await cluster.executor(0)
    await until(lambda: executor.state().unusable == 1)

    assert not await executor.ready()
    with pytest.raises(ExecutorUnavailable):
        await run(executor)
    assert not worker.jobs
    assert executor.state().workers == {"0.9.0": 1}


async def test_a_lost_scheduler(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SchedulerProcess() as scheduler:
        async with cluster_at(scheduler.address, tmp_path) as cluster:
            worker = await cluster.worker()
            executor = await cluster.executor(1)
            job = asyncio.create_task(run(executor, "sleep 60"))
            await until(lambda: worker.running == 1)

            scheduler.kill()

            with pytest.raises(ExecutorUnavailable):
                await job
            await until(lambda: worker.cancelled == 1)
            await until(lambda: f"cannot use the scheduler at {scheduler.address}: " in caplog.text)
            assert not executor.state().connected
            await asyncio.to_thread(scheduler.start)
            await until(lambda: executor.state().slots > 0)
            assert await run(executor) == b"picture"


async def test_without_a_scheduler(tmp_path: Path) -> None:
    async with cluster_at("tcp://127.0.0.1:1", tmp_path) as cluster:
        executor = await cluster.executor(0)

        assert not await executor.ready()
        assert not executor.state().connected
        with pytest.raises(ExecutorUnavailable):
            await run(executor)


async def test_a_worker_logs_once_why_it_cannot_join(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = count()

    async def fail(_scheduler: str, _installation: Installation) -> None:
        next(attempts)
        raise OSError("Timed out") from ConnectionRefusedError("Connection refused")

    monkeypatch.setattr("web.cluster.worker._check_servers", fail)
    monkeypatch.setattr("web.cluster.worker._REJOIN_INTERVAL", 0.01)
    stop = asyncio.Event()
    async with cluster_at("tcp://127.0.0.1:1", tmp_path) as cluster:
        worker = asyncio.create_task(cluster.run_worker(ScriptedExecutor(tmp_path), stop))
        await until(lambda: next(attempts) > 5)
        stop.set()
        await worker

    (message,) = caplog.messages
    assert message.startswith("cannot join the cluster at tcp://127.0.0.1:1: Connection refused; check its address")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no response"),
        (FatalCommClosedError(), "no response"),
        (OSError("Timed out trying to connect"), "Timed out trying to connect"),
    ],
)
def test_why_a_connection_failed(error: Exception, text: str) -> None:
    assert failure_cause(error).startswith(f"{text}; check")


async def test_a_lost_blob_store(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)
    (tmp_path / "blobs").rename(tmp_path / "gone")

    with pytest.raises(ExecutorUnavailable):
        await run(executor, content=b"x" * (MAX_INLINE + 1))
    assert await run(executor) == b"picture"
