"""/readyz: essential and optional checks, and checks that hang."""

import asyncio
import shutil
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from benchmarks.redis_server import RedisServer
from config.settings import Settings
from engine.conversions import conversion
from engine.errors import StepFailed
from engine.executor import Task, TaskLimits, TaskResult
from engine.formats import Content, FileFormat
from engine.media import RASTER, Raster
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from storage.errors import StoreUnavailable
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.servers.in_process import Running, Servers, eventually
from web.api.schemas.service import Cluster
from web.app import assemble
from web.services.files.files import Files
from web.services.operation import health


class Idle:
    """An executor that answers readiness checks and runs no jobs."""

    def __init__(self, *, answers: bool = True, ready: bool = True) -> None:
        self.answers = answers
        self._ready = ready
        self.checks = 0

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        raise StepFailed("Nothing is done here.")

    async def ready(self) -> bool:
        self.checks += 1
        if not self.answers:
            await asyncio.Event().wait()
        return self._ready


def reasons(response: httpx.Response) -> list[str]:
    problem(response, 503, "not_ready", retryable=True)
    found: list[str] = response.json()["error"]["details"]["reasons"]
    return found


def ready(server: Running) -> bool:
    return bool(http.get(f"{server.url}/readyz", timeout=30).json() == {"status": "ok"})


def test_a_full_disk(servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(data_dir.parent)
    with servers.running(data_dir) as server:
        assert eventually(lambda: ready(server))
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=5 << 20))
        assert reasons(http.get(f"{server.url}/readyz")) == ["the disk of the data folder is almost full"]


def test_hanging_checks_are_shared(servers: Servers, data_dir: Path) -> None:
    executor = Idle(answers=False)
    with servers.running(data_dir, executor) as server, ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(lambda _: http.get(f"{server.url}/readyz", timeout=30), range(5)))
        assert all("the executor cannot run jobs" in reasons(response) for response in answers)
        assert executor.checks == 1


def test_a_slow_check_fails_only_after_a_while(
    servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Idle()
    with servers.running(data_dir, executor) as server:
        assert eventually(lambda: ready(server))
        executor.answers = False
        assert ready(server)
        assert ready(server)
        monkeypatch.setattr(health, "MAX_SECONDS", 0.1)
        assert eventually(lambda: not ready(server))


def test_a_database_locked_by_another_process(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, Idle()) as server:
        other = sqlite3.connect(data_dir / "convertd.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        assert eventually(lambda: not ready(server))
        assert "the database does not respond" in reasons(http.get(f"{server.url}/readyz", timeout=30))
        assert http.get(f"{server.url}/healthz").json() == {"status": "ok"}
        other.close()
        assert eventually(lambda: ready(server))


def test_an_outage_of_redis_only_degrades_the_service(servers: Servers, data_dir: Path, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis, servers.running(data_dir, Idle(), redis_url=redis.url) as server:
        assert eventually(lambda: ready(server))
        redis.kill()
        response = http.get(f"{server.url}/readyz")
        assert (response.status_code, response.json()) == (
            200,
            {"status": "degraded", "reasons": ["Redis does not respond"]},
        )


async def test_plugins(data_dir: Path) -> None:
    def sniff(content: Content) -> int:
        if content[:7] == b"trigger":
            raise IndexError
        return 0

    @conversion(FileFormat("odd", media_type="image/x-odd", extensions=("odd",), sniff=sniff), RASTER)
    def decode(_data: bytes) -> Raster:
        raise AssertionError("never run")

    failing = Plugin("odd", "", (decode,), version="1.0")
    broken = Registry([*load_registry().plugins, Plugin("broken", "", error="ImportError: no such library"), failing])
    services = assemble(Settings(data_dir=data_dir), broken, Idle())
    labels = {"plugin": "odd", "version": "1.0"}
    assert services.metrics.registry.get_sample_value("convertd_plugin_up", labels) == 1
    assert (await services.readiness.state()).reasons == ("the server is starting or stopping",)
    services.readiness.start()
    state = await services.readiness.state()
    assert (state.reasons, state.degraded) == ((), ("the plugin broken does not work",))
    for _ in range(3):
        broken.identify_content(b"trigger")
    assert (await services.readiness.state()).degraded[1:] == ("the plugin odd does not work",)
    updating = asyncio.create_task(services.readiness.run())
    async with asyncio.timeout(20):
        while services.metrics.registry.get_sample_value("convertd_plugin_up", labels):  # noqa: ASYNC110, set by the task
            await asyncio.sleep(0)
    updating.cancel()
    await asyncio.to_thread(services.database.close)


@pytest.mark.parametrize(
    ("connected", "reason"),
    [
        (False, "the scheduler of the cluster does not respond"),
        (True, "the cluster has no worker with the version and the plugins of this server"),
    ],
)
async def test_a_cluster_without_workers(data_dir: Path, connected: bool, reason: str) -> None:
    state = Cluster(connected)
    services = assemble(Settings(data_dir=data_dir), load_registry(), Idle(ready=False), lambda: state)
    services.readiness.start()
    assert (await services.readiness.state()).reasons == (reason,)
    await asyncio.to_thread(services.database.close)


async def test_a_lost_file_store_is_one_line_of_the_log(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweeps, repeated = 0, asyncio.Event()

    async def sweep(_files: Files) -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps > 1:
            repeated.set()
            await asyncio.Event().wait()
        raise StoreUnavailable

    monkeypatch.setattr(Files, "sweep", sweep)
    monkeypatch.setattr("web.services.operation.maintenance.INTERVAL", 0)
    services = assemble(Settings(data_dir=data_dir), load_registry(), Idle())
    maintenance = asyncio.create_task(services.maintenance.run())
    await repeated.wait()
    maintenance.cancel()
    await asyncio.wait([maintenance])
    (record,) = [record for record in caplog.records if record.name == "convertd.maintenance"]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    await asyncio.to_thread(services.database.close)


async def test_no_formats(data_dir: Path) -> None:
    services = assemble(Settings(data_dir=data_dir), Registry([]), Idle())
    services.readiness.start()
    assert (await services.readiness.state()).reasons == ("no plugin declares a format",)
    await asyncio.to_thread(services.database.close)
