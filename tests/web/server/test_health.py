"""/healthz, /livez, /readyz and /version, checks that hang, and the log of a server."""

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import RedisServer
from config.settings import Settings
from engine.conversions import conversion
from engine.errors import OutOfMemory, StepFailed, WorkerCrashed
from engine.executor import Task, TaskLimits, TaskResult
from engine.formats import Content, FileFormat
from engine.media import RASTER, Raster
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from storage.errors import StoreUnavailable
from tests.support.executors.fake import FailingExecutor
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.requests.log_lines import captured_log, entry_of
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from web.api.schemas.service import Cluster
from web.app import assemble
from web.services.files.files import Files
from web.services.operation import health

CANARY = "canary"


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


def test_a_slow_check_fails_after_a_while(servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Idle()
    with servers.running(data_dir, executor) as server:
        assert eventually(lambda: ready(server))
        executor.answers = False
        assert ready(server)
        assert ready(server)
        monkeypatch.setattr(health, "MAX_SECONDS", 0.1)
        assert eventually(lambda: not ready(server))


@pytest.mark.long
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
        assert response.status_code == 200
        assert response.json() == {"status": "degraded", "reasons": ["Redis does not respond"]}


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


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
def test_probes_have_the_headers_too(server: Running, path: str) -> None:
    response = http.get(server.url + path)
    assert response.status_code == 200
    dressed(response)


def test_health_is_one_word(server: Running) -> None:
    assert http.get(f"{server.url}/healthz").json() == {"status": "ok"}


def test_not_ready_without_a_data_folder(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        data_dir.rename(data_dir.with_name("elsewhere"))
        problem(http.get(f"{server.url}/readyz"), 503, "not_ready", retryable=True)
        data_dir.with_name("elsewhere").rename(data_dir)
        assert http.get(f"{server.url}/readyz").json() == {"status": "ok"}


def test_a_conversion_is_one_line(server: Running) -> None:
    with captured_log() as lines:
        response = server.convert(sample("png"), "webp", quality="80")
        entry = entry_of(lines, response)
    assert (entry["message"], entry["status"], entry["code"]) == ("POST /api/v1/convert", 200, None)
    assert (entry["input_format"], entry["output_format"], entry["engine"]) == ("png", "webp", "in_process")
    assert (entry["credits"], entry["sent"]) == (1, len(response.content))
    assert entry["received"] > len(sample("png"))
    assert re.fullmatch(r"acct_\w{22}", entry["account"])
    assert isinstance(entry["ms"], int)


def test_a_conversion_with_warnings(server: Running) -> None:
    with captured_log() as lines:
        assert entry_of(lines, server.convert(sample("jpeg"), "png", quality="80"))["warnings"] == "quality_ignored"


def test_a_batch_is_one_line(server: Running) -> None:
    batch = server.request("POST", "/batch", json={"output_format": "gif"}).json()["data"]["batch_id"]
    files = [server.upload(sample("png"), path=f"/batch/{batch}/files")["file_id"] for _ in range(2)]
    with captured_log() as lines:
        body = {"file_ids": files, "output_format": "gif"}
        entry = entry_of(lines, server.request("POST", f"/batch/{batch}/convert", json=body))
    assert (entry["message"], entry["credits"]) == ("POST /api/v1/batch/{}/convert", 2)


def test_failures_are_logged_with_their_cause(server: Running) -> None:
    with captured_log() as lines:
        response = server.convert(sample("png")[:100], "webp")
        assert entry_of(lines, response)["code"] == "processing_failed"
        entry = entry_of(lines, response, "convertd.conversions")
    assert (entry["reason"], entry["input_format"], entry["output_format"]) == ("corrupt_input", "png", "webp")
    assert re.match(r"\w[\w.]*: .+ \(\S+\.py:\d+\)$", entry["cause"])
    assert entry["cause"] not in response.text


def test_a_killed_job_is_logged_with_its_request(servers: Servers, data_dir: Path) -> None:
    dying = FailingExecutor(WorkerCrashed("Crashed.", details={"exit_code": -11}), OutOfMemory("Killed."))
    with servers.running(data_dir, dying) as server, captured_log() as lines:
        crashed = entry_of(lines, server.convert(sample("png")), "convertd.conversions")
        killed = entry_of(lines, server.convert(sample("png")), "convertd.conversions")
    assert (crashed["reason"], crashed["exit_code"]) == ("worker_crashed", -11)
    assert killed["reason"] == "out_of_memory"


def test_secrets_and_private_data_are_not_logged(servers: Servers, server: Running) -> None:
    name = f"{CANARY}.png"
    with captured_log() as lines:
        answers = [
            server.convert(sample("png"), "webp", name=name),
            server.convert(sample("png")[:100], "webp", name=name),
            server.convert(CANARY.encode(), CANARY, name=name, headers={"Idempotency-Key": CANARY}),
            server.request("POST", "/pdf/delete-pages", files={"file": (name, b"%PDF-1.7")}, data={"password": CANARY}),
            server.request("GET", f"/files/{CANARY}"),
            http.get(f"{server.url}/{CANARY}?{CANARY}={CANARY}", headers={"User-Agent": CANARY, "Cookie": CANARY}),
            http.get(f"{server.api}/account", headers={"Authorization": f"Bearer cvd_live_{CANARY}"}),
            http.get(f"{server.api}/verify?token={CANARY}"),
            http.get(f"{server.api}/verify?token={'ca' * 32}", headers={"Accept": "application/json"}),
            http.post(f"{server.api}/register", json={"email": f"{CANARY}@example.com", "name": CANARY}),
            http.post(f"{server.api}/webhooks/stripe", content=CANARY, headers={"Stripe-Signature": CANARY}),
            http.post(f"{server.url}/dashboard/sign-in", data={"key": f"cvd_live_{CANARY}"}),
        ]
        server.upload(sample("png"), name=name)
        for response in answers:
            entry_of(lines, response)
    logged = "\n".join(text for text in lines.texts if "outbox" not in text and "convertd.email" not in text)
    assert CANARY not in logged.lower()
    assert "ca" * 32 not in logged
    assert server.key not in logged


def test_no_secret_in_a_traceback(servers: Servers, data_dir: Path) -> None:
    secrets = (
        f"postgresql://me:{CANARY}@db/convertd",
        f"redis://:{CANARY}@cache",
        f"{CANARY}@example.com",
        f"cvd_live_{CANARY}",
        f"sk_live_{CANARY}",
        f"whsec_{CANARY}",
        f"token={CANARY}",
    )
    executor = FailingExecutor(*(RuntimeError(secret) for secret in secrets))
    with servers.running(data_dir, executor) as server, captured_log() as lines:
        for _ in secrets:
            entry = entry_of(lines, server.convert(sample("png")), "convertd.web")
            assert "RuntimeError" in entry["traceback"]
    assert CANARY not in "\n".join(lines.texts)
