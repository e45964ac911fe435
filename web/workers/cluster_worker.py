"""The worker process of a cluster, `convertd worker`: joins the cluster, runs jobs of all its servers, and stops."""

import asyncio
import logging
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import uniform
from typing import Any

import dask.config
from dask.utils import parse_bytes
from distributed import Security, Worker, rpc
from tornado.netutil import bind_sockets

from config.logs import configure
from config.settings import Settings, scheduler_address
from engine.registry import load_registry
from storage.blobs.url_transfers import UrlTransfers
from storage.errors import StorageError, StoreUnavailable
from web.http.metrics_server import open_listener, start_metrics_server
from web.metrics import process_registry
from web.metrics.service import ClusterWorkerMetrics
from web.services.files.work_files import WorkFiles
from web.services.operation.machine import job_memory
from web.services.operation.maintenance import lock_data_folder
from web.workers.cluster_jobs import Installation, JobRunner
from web.workers.connection import CONNECT_TIMEOUT, INSTALLATION, MEMORY, SERVERS, check_tls, failure_cause, is_live
from web.workers.executor_setup import local_executor, start_local_executor

log = logging.getLogger("convertd.cluster")

_DASK_DEFAULTS = {  # Dask's own settings wake an idle worker up to a hundred times a second
    "distributed": {
        "worker": {"profile": {"enabled": False}},
        "admin": {"tick": {"interval": "500ms"}, "system-monitor": {"interval": "5s"}},
    }
}
_NO_BLOB_STORE = "this machine cannot write to the blob store of a server; check that it reaches {}"
_CHECK_TIMEOUT = 10.0  # seconds, which includes the connection
REJOIN_INTERVAL = 3.0  # seconds at most
DRAIN_TIMEOUT = 60.0  # seconds for running jobs, which is more than the longest deadline
MESSAGES_TIMEOUT = 15.0  # seconds in addition, for the answers of the scheduler and until servers have read results
_RESULT_CHECKS, _RESULT_INTERVAL = 100, 0.05  # checks whether servers have read the last results; seconds between


class WrongInstallation(Exception):
    """The servers of the cluster have another version or other plugins."""


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker joins a cluster: the scheduler, the jobs at a time, their memory in bytes, and its own address.

    Dask keeps files of its own in `folder`.
    """

    scheduler: str
    jobs: int
    memory: int
    host: str | None = None
    port: int = 0
    folder: str | None = None


def worker_options(
    settings: Settings, scheduler: str | None, jobs: int | None, memory: str | None, host: str | None, port: int
) -> WorkerOptions:
    """Returns the options of a worker. Defaults come from the settings and the machine. Raises ValueError."""
    try:
        address = settings.cluster if scheduler is None else scheduler_address(scheduler)
    except ValueError as error:
        raise ValueError(f"--scheduler {error}") from None
    if address is None:
        raise ValueError("a worker needs the address of a scheduler: --scheduler or CONVERTD_CLUSTER")
    check_tls(address, "worker", insecure=settings.cluster_insecure)
    size = job_memory() if memory is None else _size(memory)
    return WorkerOptions(address, jobs or settings.workers, size, host, port, str(settings.data_dir.absolute()))


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
    collectors = process_registry()
    metrics = ClusterWorkerMetrics(collectors)
    metrics.installation.set_plugins(registry.plugins)
    executor = local_executor(settings, options.jobs, settings.data_dir.absolute() / "workers")
    transfers = UrlTransfers()
    runner = JobRunner(Installation.of(registry), executor, transfers, work_files, metrics)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    listener = open_listener(settings.metrics_address, settings.metrics_port)
    metrics_server = None if listener is None else start_metrics_server(listener, collectors, runner.sample)
    try:
        await start_local_executor(settings, executor, metrics.installation)
        await run_worker(options, runner, stop)
    finally:
        if metrics_server is not None:
            metrics_server.stop()
        await executor.close()
        await transfers.close()
    log.info("stopped")


async def run_worker(options: WorkerOptions, runner: JobRunner, stop: asyncio.Event) -> None:
    """Runs jobs until `stop` is set, then until those have ended. Joins again when the scheduler was lost.

    Raises WrongInstallation if the servers of the cluster have another installation.
    """
    reported: set[str] = set()  # reasons logged already; cleared when the worker has joined
    while not stop.is_set():
        reason = ""
        try:
            server = await _find_server(options.scheduler, runner.installation)
            if server is not None:
                await _check_blob_store(runner.transfers, server["blob"])
            await _join(options, runner, stop)
            reported.clear()
        except StorageError as error:
            reason = str(error)
        except (OSError, TimeoutError, RuntimeError, ValueError) as error:  # the last two are of Dask's worker and TLS
            reason = failure_cause(error)
        if reason and reason not in reported:
            log.warning("cannot join the cluster at %s: %s", options.scheduler, reason)
            reported.add(reason)
        with suppress(TimeoutError):
            # Not all workers at once after a restart of the scheduler.
            await asyncio.wait_for(stop.wait(), uniform(REJOIN_INTERVAL / 2, REJOIN_INTERVAL))


async def _find_server(scheduler: str, installation: Installation) -> Mapping[str, Any] | None:
    """Returns a server of the cluster with this installation; None if there is no server at all."""
    # Not a client, for which the scheduler would compare the versions of all workers.
    security = Security().get_connection_args("worker")
    dask_rpc = rpc(scheduler, timeout=CONNECT_TIMEOUT, connection_args=security)
    async with asyncio.timeout(_CHECK_TIMEOUT), dask_rpc as connection:
        servers: Mapping[str, Any] = await connection.get_metadata(keys=[SERVERS], default={})
    live = [server for server in servers.values() if is_live(server)]
    differences = [installation.difference(server["installation"]) for server in live]
    if live and None not in differences:
        raise WrongInstallation(_difference_text(str(differences[0]), installation, live[0]["installation"]))
    return live[differences.index(None)] if live else None


async def _check_blob_store(transfers: UrlTransfers, url: str) -> None:
    """Writes an empty blob by its URL. Raises StoreUnavailable."""
    try:
        with tempfile.TemporaryFile() as file:
            await transfers.write(url, file.fileno())
    except (StorageError, OSError) as error:
        raise StoreUnavailable(_NO_BLOB_STORE.format(url.partition("?")[0])) from error


def _difference_text(difference: str, installation: Installation, server: Mapping[str, object]) -> str:
    details = "compare the plugins and missing packages that 'convertd doctor' lists"
    if difference == "version":
        details = f"{server['version']}, not {installation.version}"
    return f"the servers of the cluster have another {difference} than this worker: {details}"


async def _join(options: WorkerOptions, runner: JobRunner, stop: asyncio.Event) -> None:
    """Is a worker of the cluster until the scheduler is lost, or `stop` is set and the running jobs have ended."""
    installation = runner.installation
    information: Mapping[str, Callable[[Worker], Any]] = {INSTALLATION: lambda _worker: asdict(installation)}
    worker = Worker(
        options.scheduler,
        nthreads=options.jobs,
        host=options.host,
        port=options.port,
        resources={installation.resource: options.jobs, MEMORY: options.memory},
        local_directory=options.folder,
        memory_limit=0,  # jobs have limits of their own, in processes of their own
        startup_information=information,
        plugins=(runner,),
        death_timeout=CONNECT_TIMEOUT,
    )
    async with worker:
        limits = f"at most {options.jobs} jobs at a time, in {options.memory / (1 << 30):.2f} GiB"
        log.info("joined the cluster at %s as %s: %s", options.scheduler, worker.address, limits)
        ends = [asyncio.ensure_future(wait) for wait in (stop.wait(), worker.finished())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if stop.is_set():
            await _drain(worker, runner)
        else:
            log.warning("the scheduler was lost")


async def _drain(worker: Worker, runner: JobRunner) -> None:
    """Takes no new jobs, waits for those that run, and until servers have read their results."""
    log.info("stopping: no new jobs, up to %d s for %d that run", DRAIN_TIMEOUT, runner.running)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT + MESSAGES_TIMEOUT):
            await worker.scheduler.retire_workers(workers=[worker.address], close_workers=False, remove=False)
            await runner.finish(DRAIN_TIMEOUT)
            for _ in range(_RESULT_CHECKS):
                if not worker.state.executing and not worker.data:
                    break
                await asyncio.sleep(_RESULT_INTERVAL)
            # Without this, jobs that wait here would count as jobs of a worker that died.
            await worker.scheduler.retire_workers(workers=[worker.address], close_workers=False, remove=True)
