"""A worker of the cluster whose code is an attacker's: no server runs it, and jobs of others are right."""

import asyncio
from pathlib import Path

import httpx
import pytest
from distributed import Worker

from benchmarks.processes import ConvertdServer, SchedulerProcess
from engine.errors import ExecutorUnavailable
from engine.registry import load_registry
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.cluster import INSTALLATION, Cluster, run_scripted, until
from tests.support.servers.hostile_worker import HostileRunner, hostile_worker
from tests.support.servers.load import CREDITS, create_accounts, sqlite_url
from web.workers import cluster_executor, connection
from web.workers.cluster_jobs import Installation
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


@pytest.fixture
def runner(tmp_path: Path) -> HostileRunner:
    (tmp_path / "worker").mkdir()
    return HostileRunner(Installation.of(load_registry()), tmp_path / "worker")


@pytest.mark.slow
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
