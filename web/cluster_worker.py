"""The composition root of `convertd worker`: builds the executor of a worker of a cluster, runs and stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
from importlib.metadata import version

import dask.config
from dask.utils import parse_bytes
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, disable_created_metrics
from tornado.netutil import bind_sockets

from config.logs import configure
from config.settings import Settings, scheduler_address
from engine.registry import load_registry
from web.cluster.connection import check_tls
from web.cluster.jobs import Installation
from web.cluster.worker import JobRunner, WorkerOptions, run_worker
from web.executor_setup import local_executor, open_blobs, start_local_executor
from web.http.metrics_server import start_metrics_server
from web.metrics.cluster import ClusterWorkerMetrics
from web.services.job_queue import memory_budget
from web.services.maintenance import lock_data_folder
from web.services.work_files import WorkFiles

log = logging.getLogger("convertd.cluster")

_DASK_DEFAULTS = {  # Dask's own settings wake an idle worker up to a hundred times a second
    "distributed": {
        "worker": {"profile": {"enabled": False}},
        "admin": {"tick": {"interval": "500ms"}, "system-monitor": {"interval": "5s"}},
    }
}


def worker_options(
    settings: Settings, scheduler: str | None, jobs: int | None, memory: str | None, host: str | None, port: int
) -> WorkerOptions:
    """Returns the options of a worker, by default those of the settings and of this machine. Raises ValueError."""
    address = settings.cluster if scheduler is None else _scheduler(scheduler)
    if address is None:
        raise ValueError("a worker needs the address of a scheduler: --scheduler or CONVERTD_CLUSTER")
    if settings.blob_url is None:
        raise ValueError("a worker needs the blob store of its servers: CONVERTD_BLOB_URL")
    check_tls(address, "worker")
    size = memory_budget() if memory is None else _size(memory)
    return WorkerOptions(address, jobs or settings.workers, size, host, port, str(settings.data_dir.absolute()))


def _scheduler(address: str) -> str:
    try:
        return scheduler_address(address)
    except ValueError as error:
        raise ValueError(f"--scheduler {error}") from None


def _size(text: str) -> int:
    """Returns a size such as 4GiB in bytes. Raises ValueError."""
    try:
        size = parse_bytes(text)
    except ValueError:
        size = 0
    if size < 1:
        raise ValueError(f"--memory must be a size such as 4GiB, not {text!r}")
    return size


async def serve_worker(settings: Settings, options: WorkerOptions) -> None:
    """Runs jobs of the cluster until SIGTERM or SIGINT, then until running jobs have ended.

    Raises WrongInstallation, DataFolderInUse, SandboxIncomplete if the sandbox is required and incomplete, and OSError
    if the worker cannot listen on its address.
    """
    configure(settings.log_format)
    dask.config.update_defaults(_DASK_DEFAULTS)
    _check_address(options)
    with lock_data_folder(settings.data_dir):
        await _serve(settings, options)


def _check_address(options: WorkerOptions) -> None:
    # Dask's worker would fail with a long traceback, again and again.
    try:
        for listener in bind_sockets(options.port, options.host):
            listener.close()
    except OSError as error:
        raise OSError(f"cannot listen on {options.host or '*'}:{options.port}: {error.strerror or error}") from error


async def _serve(settings: Settings, options: WorkerOptions) -> None:
    registry = load_registry()
    work_files = WorkFiles(settings.data_dir.absolute() / "jobs")
    work_files.prepare()
    disable_created_metrics()
    collectors = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector):
        collector(registry=collectors)
    metrics = ClusterWorkerMetrics(collectors)
    metrics.installation.set_build(version("convertd"), registry.plugins)
    executor = local_executor(settings, options.jobs, settings.data_dir.absolute() / "workers")
    blobs, installation = open_blobs(settings, durable=False), Installation.of(registry, settings)
    runner = JobRunner(installation, executor, blobs, work_files, metrics)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    listener = start_metrics_server(settings.metrics_port, collectors, runner.sample)
    try:
        await start_local_executor(settings, executor, metrics.installation)
        await run_worker(options, installation, runner, stop)
    finally:
        if listener is not None:
            listener.stop()
        await executor.close()
        await blobs.close()
    log.info("stopped")
