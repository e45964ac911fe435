"""Workers, the scheduler or the blob store of a cluster are lost, stop, or do not fit."""

import asyncio
import signal
from itertools import count
from pathlib import Path

import pytest
from distributed.comm.core import FatalCommClosedError

from benchmarks.processes import SchedulerProcess
from engine.errors import ExecutorUnavailable, WorkerCrashed
from tests.support.servers.cluster import (
    MEMORY,
    Cluster,
    ScriptedExecutor,
    cluster_at,
    run_scripted,
    running_cluster,
    until,
)
from web.workers import cluster_worker, connection
from web.workers.cluster_jobs import MAX_INLINE, Installation
from web.workers.cluster_worker import WrongInstallation
from web.workers.connection import failure_cause

OTHER = Installation("0.9.0", "catalogue")


@pytest.mark.long
async def test_jobs_of_killed_workers_run_again(cluster: Cluster) -> None:
    processes = [await cluster.process(), await cluster.process()]
    executor = await cluster.executor(2)
    jobs = [asyncio.create_task(run_scripted(executor, "wait", bytes([number]))) for number in range(4)]
    await until(lambda: cluster.started() == 4)

    processes[0].send_signal(signal.SIGKILL)
    cluster.release()

    assert await asyncio.gather(*jobs) == [bytes([number]) for number in range(4)]
    assert executor.state().retries == 2


async def test_a_job_that_kills_workers_fails_alone(cluster: Cluster) -> None:
    """The other jobs of the killed workers run again."""
    for _ in range(4):
        await cluster.process()
    executor = await cluster.executor(4)
    others = [asyncio.create_task(run_scripted(executor, "wait", bytes([number]))) for number in range(7)]
    await until(lambda: cluster.started() == 7)

    deadly = asyncio.create_task(run_scripted(executor, "die"))
    await until(lambda: cluster.started() == 8)
    cluster.release()

    with pytest.raises(WorkerCrashed):
        await deadly
    assert await asyncio.gather(*others) == [bytes([number]) for number in range(7)]
    assert executor.state().retries > 2  # two of them of the job itself


@pytest.mark.long
async def test_jobs_of_a_worker_that_does_not_respond_run_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, worker_ttl=1) as cluster:
        process = await cluster.process()
        executor = await cluster.executor(1)
        job = asyncio.create_task(run_scripted(executor, "wait"))
        await until(lambda: cluster.started() == 1)
        await cluster.process()
        await until(lambda: cluster.joined() == 2)

        process.send_signal(signal.SIGSTOP)
        cluster.release()

        assert await job == b"picture"
        process.send_signal(signal.SIGCONT)
        await until(lambda: cluster.joined() == 2)


@pytest.mark.long
async def test_jobs_fail_while_all_workers_stand_still(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "POLL_INTERVAL", 0.2)
    monkeypatch.setattr(connection, "MAX_SILENCE", 2.0)
    monkeypatch.setattr(connection, "MAX_OUTAGE", 1.0)
    process = await cluster.process()
    executor = await cluster.executor(1)
    job = asyncio.create_task(run_scripted(executor, "wait"))
    await until(lambda: cluster.started() == 1)

    process.send_signal(signal.SIGSTOP)

    with pytest.raises(ExecutorUnavailable):
        await asyncio.wait_for(job, 20)
    assert not await executor.ready()
    assert executor.state().usable == 1
    process.send_signal(signal.SIGCONT)
    cluster.release()
    await until(lambda: bool(executor.connection.workers))
    assert await run_scripted(executor) == b"picture"


@pytest.mark.long
async def test_a_worker_ends_its_jobs_before_it_stops(cluster: Cluster) -> None:
    process = await cluster.process()
    executor = await cluster.executor(1)
    draining = {*executor.connection.workers}
    job = asyncio.create_task(run_scripted(executor, "wait"))
    await until(lambda: cluster.started() == 1)

    process.send_signal(signal.SIGTERM)
    await until(lambda: cluster.joined() == 0)
    worker = await cluster.worker()
    await until(lambda: bool(executor.connection.workers) and not draining & {*executor.connection.workers})

    assert await run_scripted(executor, account="other") == b"picture"
    assert worker.jobs == {"other": 1}
    cluster.release()
    assert await job == b"picture"
    assert await process.wait() == 0
    assert executor.state().retries == 0


async def test_the_last_worker_ends_its_jobs_before_it_stops(cluster: Cluster) -> None:
    process = await cluster.process(jobs=1)
    executor = await cluster.executor(1)
    jobs = [asyncio.create_task(run_scripted(executor, "wait")) for _ in range(2)]
    await until(lambda: cluster.started() == 1)

    process.send_signal(signal.SIGTERM)
    await until(lambda: cluster.joined() == 0)
    cluster.release()

    # Which of them has started is open.
    refused, finished = sorted(await asyncio.gather(*jobs, return_exceptions=True), key=lambda each: each == b"picture")
    assert finished == b"picture"
    assert isinstance(refused, ExecutorUnavailable)
    assert await process.wait() == 0


async def test_a_waiting_job_is_sent_once(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has not read yet that the worker has left."""
    monkeypatch.setattr(connection, "POLL_INTERVAL", 3600.0)
    stop = asyncio.Event()
    worker = asyncio.create_task(cluster.run_worker(ScriptedExecutor(tmp_path), stop))
    executor = await cluster.executor(1)
    stop.set()
    await worker

    with pytest.raises(ExecutorUnavailable):
        await run_scripted(executor, memory=10 * MEMORY)
    assert cluster.submitted() == 1


async def test_a_worker_of_another_installation_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    with pytest.raises(WrongInstallation, match=r"another version than this worker: 1\.0\.0, not 0\.9\.0"):
        await cluster.run_worker(ScriptedExecutor(tmp_path), asyncio.Event(), installation=OTHER)

    assert await run_scripted(executor) == b"picture"


async def test_a_worker_without_the_blob_store_waits_for_it(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It writes to the blob store of a server before it joins."""
    await cluster.executor(0)
    (tmp_path / "blobs").rename(tmp_path / "gone")
    stop = asyncio.Event()
    worker = asyncio.create_task(cluster.run_worker(ScriptedExecutor(tmp_path), stop))
    await until(lambda: "this machine cannot write to the blob store of a server" in caplog.text)
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
        await run_scripted(executor)
    assert not worker.jobs
    assert executor.state().workers == {"0.9.0": 1}


async def test_a_job_that_is_moved_to_a_worker_of_another_installation(cluster: Cluster) -> None:
    """Dask moves jobs from busy workers to idle ones. The worker has just joined."""
    await cluster.worker(jobs=1)
    executors = [await cluster.executor(1), await cluster.executor(1)]
    await cluster.executor(0, OTHER)
    jobs = [asyncio.create_task(run_scripted(executor, "wait")) for executor in executors]
    await until(lambda: cluster.submitted() == 2)

    worker = await cluster.worker(installation=OTHER)
    await until(lambda: cluster.submitted() == 3)
    cluster.release()

    assert await asyncio.gather(*jobs) == 2 * [b"picture"]
    assert not worker.jobs
    assert cluster.joined() == 2
    assert sum(executor.state().retries for executor in executors) == 0


@pytest.mark.long
async def test_a_lost_scheduler(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SchedulerProcess() as scheduler:
        async with cluster_at(scheduler.address, tmp_path) as cluster:
            worker = await cluster.worker()
            executor = await cluster.executor(1)
            job = asyncio.create_task(run_scripted(executor, "sleep 60"))
            await until(lambda: worker.running == 1)

            scheduler.kill()

            with pytest.raises(ExecutorUnavailable):
                await job
            await until(lambda: worker.cancelled == 1)
            await until(lambda: f"cannot use the scheduler at {scheduler.address}: " in caplog.text)
            assert not executor.state().connected
            await asyncio.to_thread(scheduler.start)
            await until(lambda: executor.state().slots > 0)
            assert await run_scripted(executor) == b"picture"


async def test_a_worker_stops_while_the_scheduler_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_worker, "DRAIN_TIMEOUT", 0.1)
    monkeypatch.setattr(cluster_worker, "MESSAGES_TIMEOUT", 0.1)
    with SchedulerProcess() as scheduler:
        async with cluster_at(scheduler.address, tmp_path) as cluster:
            stop = asyncio.Event()
            worker = asyncio.create_task(cluster.run_worker(ScriptedExecutor(tmp_path), stop))
            await cluster.executor(1)
            scheduler.stall()
            stop.set()

            await asyncio.wait([worker], timeout=60)

            assert worker.done()
            scheduler.resume()


async def test_without_a_scheduler(tmp_path: Path) -> None:
    async with cluster_at("tcp://127.0.0.1:1", tmp_path) as cluster:
        executor = await cluster.executor(0)

        assert not await executor.ready()
        assert not executor.state().connected
        with pytest.raises(ExecutorUnavailable):
            await run_scripted(executor)


async def test_a_worker_logs_once_why_it_cannot_join(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = count()

    def fail(_scheduler: str, **_options: object) -> None:
        next(attempts)
        raise OSError("Timed out") from ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(cluster_worker, "rpc", fail)
    monkeypatch.setattr(cluster_worker, "REJOIN_INTERVAL", 0.01)
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
        await run_scripted(executor, content=b"x" * (MAX_INLINE + 1))
    assert await run_scripted(executor) == b"picture"
