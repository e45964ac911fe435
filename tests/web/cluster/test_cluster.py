"""Jobs on the workers of a cluster: their files, errors, placement and cancellation."""

import asyncio
import os

import pytest

from engine.errors import CorruptInput, ExecutorUnavailable, StepFailed
from tests.support.servers.cluster import MEMORY, SECONDS, Cluster, run_scripted, until
from web.workers.cluster_jobs import MAX_INLINE


@pytest.mark.parametrize("size", [1, MAX_INLINE, MAX_INLINE + 1, 3 * MAX_INLINE])
async def test_files_of_a_job(cluster: Cluster, size: int) -> None:
    """Small files are part of messages. Large ones are deleted from the blob store after the job."""
    await cluster.worker()
    executor = await cluster.executor(1)
    content = os.urandom(size)

    assert await run_scripted(executor, content=content) == content
    await until(lambda: not cluster.stored())


async def test_the_error_of_a_job(cluster: Cluster) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    with pytest.raises(CorruptInput, match="The file is damaged") as raised:
        await run_scripted(executor, "fail", b"x" * (MAX_INLINE + 1))

    assert (raised.value.details, raised.value.seconds) == ({"step": "png"}, SECONDS)
    await until(lambda: not cluster.stored())


async def test_an_unexpected_error_of_a_job(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The worker logs it without the job's files, and without its options, which may be passwords."""
    await cluster.worker()
    executor = await cluster.executor(1)

    with pytest.raises(StepFailed):
        await run_scripted(executor, "crash", b"private")

    assert "RuntimeError: unexpected" in caplog.text
    assert "private" not in caplog.text
    assert "secret" not in caplog.text


async def test_a_cancelled_job_ends_on_its_worker(cluster: Cluster) -> None:
    worker = await cluster.worker()
    executor = await cluster.executor(1)
    job = asyncio.create_task(run_scripted(executor, "sleep 60"))
    await until(lambda: worker.running == 1)

    job.cancel()

    with pytest.raises(asyncio.CancelledError):
        await job
    await until(lambda: worker.cancelled == 1)
    assert await run_scripted(executor) == b"picture"


async def test_a_job_that_is_cancelled_before_it_starts(cluster: Cluster) -> None:
    """The worker receives the job and its end in one message."""
    worker = await cluster.worker()
    executor = await cluster.executor(1)
    client = executor.connection.client
    assert client is not None

    with cluster.releasing_sent_jobs(client.id) as released:
        job = asyncio.create_task(run_scripted(executor, "sleep 60"))
        await until(lambda: bool(released))
    job.cancel()

    assert await run_scripted(executor, account="other") == b"picture"
    assert worker.jobs == {"other": 1}


async def test_a_job_that_is_cancelled_while_its_result_is_read(cluster: Cluster) -> None:
    """Results of other jobs are read, whichever step of the reading it interrupts."""
    await cluster.worker()
    executor = await cluster.executor(1)
    client = executor.connection.client
    assert client is not None
    for steps in range(20):
        known = {*client.futures}
        other, job = asyncio.create_task(run_scripted(executor)), asyncio.create_task(run_scripted(executor))
        while not (other.done() or job.done()):
            await asyncio.sleep(0)
            if sum(client.futures[key].status == "finished" for key in client.futures.keys() - known) == 2:
                break
        for _ in range(steps):
            await asyncio.sleep(0)

        job.cancel()

        assert await other == b"picture"
        assert await run_scripted(executor) == b"picture"


async def test_jobs_of_a_server_that_disconnects_end(cluster: Cluster) -> None:
    worker = await cluster.worker()
    executor = await cluster.executor(1)
    job = asyncio.create_task(run_scripted(executor, "sleep 60"))
    await until(lambda: worker.running == 1)

    await executor.close()

    await until(lambda: worker.cancelled == 1)
    with pytest.raises(ExecutorUnavailable):
        await job


async def test_jobs_start_within_the_memory_of_a_worker(cluster: Cluster) -> None:
    worker = await cluster.worker(jobs=4)
    executor = await cluster.executor(1)

    await asyncio.gather(*(run_scripted(executor, "sleep 0.1", memory=MEMORY // 2 + 1) for _ in range(3)))
    assert worker.most_running == 1

    await asyncio.gather(*(run_scripted(executor, "sleep 0.1", memory=MEMORY // 2) for _ in range(3)))
    assert worker.most_running == 2


async def test_a_job_larger_than_all_workers_runs_alone(cluster: Cluster) -> None:
    await cluster.worker()
    executor = await cluster.executor(1)

    assert await run_scripted(executor, memory=10 * MEMORY) == b"picture"


async def test_jobs_of_an_account_prefer_one_worker(cluster: Cluster) -> None:
    """All servers prefer the same one, whose process of the account is idle."""
    workers = [await cluster.worker(), await cluster.worker()]
    executors = [await cluster.executor(2), await cluster.executor(2)]

    for account in "abcdefgh":
        for executor in executors:
            assert await run_scripted(executor, account=account) == b"picture"

    assert all(sum(worker.jobs[account] > 0 for worker in workers) == 1 for account in "abcdefgh")
    assert all(worker.jobs for worker in workers)


async def test_an_account_uses_all_workers(cluster: Cluster) -> None:
    workers = [await cluster.worker(), await cluster.worker()]
    executor = await cluster.executor(2)

    await asyncio.gather(*(run_scripted(executor, "sleep 0.3") for _ in range(4)))

    assert [worker.most_running for worker in workers] == [2, 2]


async def test_servers_share_the_workers_equally(cluster: Cluster) -> None:
    """Each learns how many there are, until one stops."""
    await cluster.worker(jobs=4)
    seen: list[tuple[int, int, int]] = []
    one = await cluster.executor(1, on_resize=lambda *limits: seen.append(limits))
    other = await cluster.executor(1)
    one.connection.refresh()
    await until(lambda: seen[-1] == (4, MEMORY, 2))
    await other.close()
    one.connection.refresh()
    await until(lambda: seen[-1] == (4, MEMORY, 1))
