"""Jobs on the workers of a cluster: files, errors, placement, cancellation, and a worker with an attacker's code."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from distributed import Worker

from benchmarks.processes import ConvertdServer, SchedulerProcess
from engine.errors import CorruptInput, ExecutorUnavailable, StepFailed
from engine.registry import load_registry
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.cluster import INSTALLATION, MEMORY, SECONDS, Cluster, run_scripted, until
from tests.support.servers.hostile_worker import HostileRunner, hostile_worker
from tests.support.servers.load import CREDITS, create_accounts, sqlite_url
from web.workers import cluster_executor, connection
from web.workers.cluster_jobs import MAX_INLINE, Installation
from web.workers.connection import INSTALLATION as INSTALLATION_ENTRY

_ANSWERS = {  # the status and the code of the error by what the worker sends
    **dict.fromkeys(("object", "marked object", "type"), (503, "not_ready")),
    "exception": (500, "processing_failed"),  # as of a worker that dies
    "warning": (200, None),  # beside a result
    **dict.fromkeys(("nothing", "text", "unreadable reply"), (503, "not_ready")),
    **dict.fromkeys(("wrong size", "negative size", "vast"), (503, "not_ready")),
    **dict.fromkeys(("no blob", "small blob", "other bytes"), (503, "not_ready")),
}
_LIMIT = 15.0  # seconds


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


@pytest.fixture
def runner(tmp_path: Path) -> HostileRunner:
    (tmp_path / "worker").mkdir()
    return HostileRunner(Installation.of(load_registry()), tmp_path / "worker")


@pytest.mark.slow
@pytest.mark.long
async def test_a_server_and_a_hostile_worker(tmp_path: Path, runner: HostileRunner) -> None:
    """The server runs no code of the worker, and charges only for results. The next job is right."""
    with SchedulerProcess() as scheduler:
        settings = {"CONVERTD_CLUSTER": scheduler.address, "CONVERTD_BLOB_URL": (tmp_path / "blobs").as_uri()}
        with ConvertdServer(tmp_path / "server", settings) as server:
            (key,) = create_accounts(sqlite_url(tmp_path / "server"), 1)
            headers = {"Authorization": f"Bearer {key}"}
            client = httpx.AsyncClient(base_url=server.api, headers=headers, timeout=_LIMIT, trust_env=False)

            async def convert(deed: str, path: str = "/convert") -> httpx.Response:
                files, data = {"file": (f"{deed}.png", image())}, {"output_format": "bmp"}
                return await client.post(path, files=files, data=data)

            async with client, hostile_worker(scheduler.address, runner):
                await until(lambda: http.get(f"{server.url}/readyz").is_success)
                for attack, answer in _ANSWERS.items():
                    response = await convert(attack)
                    code = response.json()["error"]["code"] if response.is_error else None
                    assert (attack, response.status_code, code) == (attack, *answer)
                    assert not (tmp_path / "worker" / str(server.pid)).exists(), attack
                    assert (await convert("honest")).content == b"result"
                for attack in ("no blob", "small blob"):
                    assert (await convert(attack, "/convert/json")).status_code == 503

                stored = (await convert("honest large", "/convert/json")).json()["data"]
                await runner.write(runner.urls[-1], b"x" * stored["processed_size"])
                downloaded = await client.get(f"/files/{stored['file_id']}/download")
                assert downloaded.content == bytes(stored["processed_size"])
                account = (await client.get("/account")).json()["data"]
            charged = 1 + len(_ANSWERS) + 1
            assert account["credits_remaining"] == CREDITS - charged


async def test_a_reply_that_is_not_sent(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job fails, and the replies to other jobs are read meanwhile."""
    monkeypatch.setattr(cluster_executor, "FETCH_TIMEOUT", 2.0)
    async with hostile_worker(cluster.scheduler, HostileRunner(INSTALLATION, tmp_path)) as worker:
        server = await cluster.executor(1)
        job = asyncio.create_task(run_scripted(server, "silence"))
        await until(lambda: worker.stalled == 1)

        assert await run_scripted(server, "honest") == b"result"
        assert not job.done()

        with pytest.raises(ExecutorUnavailable):
            await job


async def test_a_message_that_cannot_be_read(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's client reads no message after it. The server connects again, and its jobs run."""
    monkeypatch.setattr(connection, "POLL_INTERVAL", 0.1)
    async with hostile_worker(cluster.scheduler, HostileRunner(INSTALLATION, tmp_path)):
        server = await cluster.executor(1)

        with pytest.raises(ExecutorUnavailable):
            await run_scripted(server, "unreadable exception")

        await until(lambda: server.connection.client is not None)
        assert await run_scripted(server, "honest") == b"result"


@pytest.mark.parametrize("description", [5, ["version"], {"version": ["1.0.0"]}])
async def test_a_worker_that_describes_itself_wrongly(cluster: Cluster, tmp_path: Path, description: object) -> None:
    """Servers leave it out."""
    information = {INSTALLATION_ENTRY: lambda _worker: description}
    folder, scheduler = str(tmp_path), cluster.scheduler
    async with Worker(scheduler, host="127.0.0.1", local_directory=folder, startup_information=information):
        await cluster.worker()
        server = await cluster.executor(1)

        assert await run_scripted(server) == b"picture"
        assert server.state().slots == 2
