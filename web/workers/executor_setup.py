"""Creates the executor and the blob store of the settings, and checks the sandbox that they require."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from config.settings import Settings, SettingsError
from engine import sandbox
from engine.errors import ConversionError
from engine.executor import LocalExecutor
from engine.executor.detector import Detector
from engine.executor.forkserver import ForkServer
from engine.executor.local import SingleWorker
from engine.executor.pool import WorkerPool
from engine.lazy import lazy_imports
from engine.network import Fetch, WebRequest, WebResponse
from engine.registry import Registry, load_registry
from web.services.operation.machine import idle_memory

if TYPE_CHECKING:
    from web.metrics.service import InstallationMetrics

with lazy_imports():  # most commands use neither the blob store nor the cluster, and make no requests
    from config import logs
    from storage.blobs import blob_store
    from web.services.conversions import task_requests
    from web.services.webhooks import outgoing
    from web.workers import cluster_executor, cluster_jobs, connection

log = logging.getLogger("convertd.server")


class SandboxIncomplete(RuntimeError):
    """The sandbox is required but incomplete on this system; `str(error)` lists the missing layers and checks."""


def open_blobs(settings: Settings, *, durable: bool = True) -> blob_store.BlobStore:
    """Opens the blob store. Unless `durable`, new blobs may be lost if the machine crashes. Blocks."""
    url = settings.blob_url.get_secret_value() if settings.blob_url else None
    folder = settings.data_dir.absolute() / "blobs"
    return blob_store.open_blob_store(url, folder, durable=durable, timeout=settings.store_timeout)


def server_executor(
    settings: Settings, registry: Registry, processes: int = 1
) -> LocalExecutor | cluster_executor.ClusterExecutor:
    """Returns the executor of a process of a server: of the cluster if the settings name one, else of this machine.

    Each of the `processes` of the server has an executor of its own, with its share of the memory of idle workers.
    The caller starts and closes it. Raises SettingsError if the cluster needs other settings or TLS variables. With a
    cluster, this process reads no pickles any more.
    """
    if settings.cluster is None:
        folder = settings.data_dir.absolute() / "workers"
        # While jobs in the background use all slots, requests that come start beside them.
        additional = settings.workers // 2
        return local_executor(settings, settings.workers, folder, processes=processes, additional=additional)
    if settings.blob_url is None:
        raise SettingsError(
            "CONVERTD_CLUSTER requires CONVERTD_BLOB_URL: servers and workers exchange files through the blob store"
        )
    logs.quiet_libraries()
    connection.check_tls(settings.cluster, "client", insecure=settings.cluster_insecure)
    connection.refuse_pickles()
    blobs = open_blobs(settings, durable=False)  # a job ends with its server
    return cluster_executor.ClusterExecutor(settings.cluster, cluster_jobs.Installation.of(registry), blobs)


def file_detector(settings: Settings, registry: Registry, executor: object) -> Detector:
    """Returns what identifies the files of a server, in processes of its executor if that runs jobs on this machine.

    Otherwise it has a fork server with no modules of jobs, which starts with the first file that needs it.
    """
    if isinstance(executor, LocalExecutor):
        return Detector(registry, executor.pool)
    folder = settings.data_dir.absolute() / "workers"
    own = local_executor(settings, 0, folder, modules=("engine.detection",))
    return Detector(registry, own.pool, owns_pool=True)


def local_executor(
    settings: Settings,
    workers: int,
    folder: Path | None = None,
    modules: Collection[str] = (),
    processes: int = 1,
    additional: int = 0,
) -> LocalExecutor:
    """Returns an executor with the sandbox layers and jobs per process of the settings. The caller closes it.

    Runs `workers` tasks at a time, and at most as many `additional` ones, for which no process is kept ready. While
    fewer tasks run, several processes share the pages of a document; of several `processes`, each has its part of them.

    The folders of worker processes are below `folder`, by default the system's temporary folder. The jobs import
    `modules`; by default, the modules of all jobs. The memory of idle worker processes is shared by `processes`.
    """
    layers = sandbox.ALWAYS if settings.sandbox == "off" else sandbox.LAYERS
    pool = WorkerPool(
        ForkServer(layers, modules, folder), workers, settings.jobs_per_process, idle_memory() // processes
    )
    return LocalExecutor(workers + additional, pool=pool, cores=workers // processes, fetch=_fetch(settings))


def command_executor(
    settings: Settings, jobs: int, modules: Collection[str], workers: int | None = None
) -> LocalExecutor:
    """Returns an executor for a number of jobs that import only `modules`. The caller closes it.

    It runs at most `workers` at a time, by default as many as the settings allow.
    """
    if jobs == 1:
        layers = sandbox.ALWAYS if settings.sandbox == "off" else sandbox.LAYERS
        return LocalExecutor(1, pool=SingleWorker(layers, modules), fetch=_fetch(settings))
    return local_executor(settings, min(workers or settings.workers, jobs), modules=modules)


def _fetch(settings: Settings) -> Fetch:
    """Returns what makes the requests of tasks, by the same rules as those to URLs of clients."""
    opened: list[outgoing.Outgoing] = []

    async def fetch(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        if not opened:
            opened.append(outgoing.open_outgoing(settings))
        return await task_requests.answer(opened[0], request, max_bytes, seconds)

    return fetch


async def start_local_executor(settings: Settings, executor: LocalExecutor, metrics: InstallationMetrics) -> None:
    """Starts the executor, and records the layers of its sandbox. Raises SandboxIncomplete and ExecutorUnavailable."""
    await executor.start()
    if settings.templates_ahead:
        executor.prepare(load_registry().templates)
    report = await check_sandbox(settings, executor)
    metrics.set_sandbox_layers(report.layers)
    if report.missing:
        log.warning("sandbox incomplete (%s); missing layers: %s", settings.sandbox, ", ".join(report.missing))


async def check_sandbox(settings: Settings, executor: LocalExecutor) -> sandbox.SandboxReport:
    """Returns the sandbox report of the executor. Raises SandboxIncomplete if the settings require more."""
    try:
        report = await executor.examine()
    except ConversionError as error:
        raise SandboxIncomplete(f"the sandbox check failed: {error}") from error
    if settings.sandbox == "required" and not report.complete:
        missing = ", ".join(report.missing)
        raise SandboxIncomplete(f"the sandbox is required but incomplete; missing: {missing}; see 'convertd doctor'")
    return report
