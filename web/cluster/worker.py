"""The worker process of a cluster: runs the jobs of all servers in sandboxed processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from random import uniform
from typing import Any

from distributed import Security, Worker, WorkerPlugin, get_worker, rpc

from engine.errors import ConversionError, ExecutorUnavailable
from engine.executor import Executor, JobResult
from storage.blobs.blob_store import BlobStore
from storage.errors import StorageError
from web.api.errors import ApiError
from web.cluster.connection import CONNECT_TIMEOUT, INSTALLATION, MEMORY, SERVERS, failure_cause
from web.cluster.jobs import (
    ClusterJob,
    ClusterResult,
    FileContent,
    Installation,
    OtherInstallation,
    receive_file,
    send_file,
)
from web.metrics.cluster import ClusterWorkerMetrics, JobOutcome
from web.services.work_files import WorkFile, WorkFiles

log = logging.getLogger("convertd.cluster")

_PLUGIN = "convertd"

_NO_BLOB_STORE = (
    "its blob store accepts no files; check CONVERTD_BLOB_URL, and for S3 the bucket and the AWS_* variables"
)
_SERVER_TIMEOUT = 60.0  # seconds without a sign, until a server is taken as gone
_CHECK_TIMEOUT = 10.0  # seconds, which includes the connection
REJOIN_INTERVAL = 3.0  # seconds at most
DRAIN_TIMEOUT = 60.0  # seconds for running jobs, which is more than the longest deadline
MESSAGES_TIMEOUT = 15.0  # seconds in addition, for the answers of the scheduler and until servers have read results
_RESULT_CHECKS, _RESULT_INTERVAL = 100, 0.05  # until servers have read the last results; seconds between checks


class WrongInstallation(Exception):
    """The servers of the cluster have another version, other plugins or another blob store."""


async def run_job(job: ClusterJob) -> ClusterResult | ConversionError:
    """Runs a job on the worker that executes this task."""
    worker = get_worker()
    runner = worker.plugins[_PLUGIN]
    assert isinstance(runner, JobRunner)
    if worker.state.tasks[job.id].state == "cancelled":  # before it started; `transition` ends jobs that run
        return ExecutorUnavailable("The job was cancelled.")
    return await runner.run(job)


class JobRunner(WorkerPlugin):
    """Runs the jobs of a worker. A job ends early if the scheduler releases its task, and with the worker."""

    name = _PLUGIN

    def __init__(
        self,
        installation: Installation,
        executor: Executor,
        blobs: BlobStore,
        work_files: WorkFiles,
        metrics: ClusterWorkerMetrics,
    ) -> None:
        self._installation = installation
        self._executor = executor
        self._blobs = blobs
        self._work_files = work_files
        self._metrics = metrics
        self._running: dict[str, asyncio.Task[ClusterResult]] = {}

    def sample(self) -> None:
        """Sets the metrics that are read at scrape time."""
        self._metrics.running.set(len(self._running))

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return len(self._running)

    async def run(self, job: ClusterJob) -> ClusterResult | ConversionError:
        """Runs a job. Returns its error: Dask logs errors that are raised."""
        if difference := self._installation.difference(asdict(job.installation)):
            return OtherInstallation(f"The worker of the cluster has another {difference} than the server.")
        task = self._running[job.id] = asyncio.create_task(self._run(job))
        try:
            await asyncio.wait([task])
            outcome = _outcome(task)
            result: JobOutcome = "failed" if isinstance(outcome, ConversionError) else "succeeded"
            self._metrics.record_job("cancelled" if task.cancelled() else result)
            return outcome
        finally:
            del self._running[job.id]
            task.cancel()

    async def blob_store_ready(self) -> bool:
        """Returns whether the blob store accepts files."""
        return await self._blobs.ready()

    def setup(self, worker: Worker) -> None:
        """Records that the worker joins a cluster."""
        self._metrics.joined.set(1)

    def transition(self, key: object, start: str, finish: str, **_details: Any) -> None:
        """Cancels a running job whose task the scheduler releases: no server waits for it."""
        if start == "executing" and finish == "released" and (task := self._running.get(str(key))):
            task.cancel()

    async def finish(self, seconds: float) -> None:
        """Waits until no job runs, and cancels those that run after `seconds`."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)
        self._cancel_jobs()

    def teardown(self, worker: Worker) -> None:
        """Cancels all jobs, and records that the worker has left its cluster."""
        self._metrics.joined.set(0)
        self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def _run(self, job: ClusterJob) -> ClusterResult:
        with ExitStack() as stack:
            inputs = [await self._receive(stack, job.account, content) for content in job.inputs]
            output = stack.enter_context(self._work_files.create(job.account))
            result = await self._execute(job, inputs, output)
            return ClusterResult(result, await send_file(self._blobs, output.descriptor, job.output))

    async def _receive(self, stack: ExitStack, account: str, content: FileContent) -> int:
        file = stack.enter_context(self._work_files.create(account))
        async for block in receive_file(self._blobs, content):
            await file.write(block)
        await file.flush()
        return file.descriptor

    async def _execute(self, job: ClusterJob, inputs: list[int], output: WorkFile) -> JobResult:
        result = await self._executor.run(job.job, job.account, inputs, output.descriptor, job.limits)
        await output.seal(result.outcome.processed_size)
        return result


def _outcome(task: asyncio.Task[ClusterResult]) -> ClusterResult | ConversionError:
    if task.cancelled():  # if a server waits for it, the worker has left the cluster
        return ExecutorUnavailable("The worker of the cluster has stopped.")
    match task.exception():
        case None:
            return task.result()
        case ConversionError() as error:
            return error
        case StorageError() | ApiError() | OSError() as error:
            return ExecutorUnavailable(f"The worker of the cluster cannot read or write the files of the job: {error}")
        case error:
            raise error


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


async def run_worker(
    options: WorkerOptions, installation: Installation, runner: JobRunner, stop: asyncio.Event
) -> None:
    """Runs jobs until `stop` is set, then until those have ended. Joins again when the scheduler was lost.

    Raises WrongInstallation if the servers of the cluster have another installation.
    """
    reported: set[str] = set()  # since the worker was part of the cluster
    while not stop.is_set():
        reason = ""
        try:
            await _check_servers(options.scheduler, installation)
            if await runner.blob_store_ready():
                await _join(options, installation, runner, stop)
                reported.clear()
            else:
                reason = _NO_BLOB_STORE
        except (OSError, TimeoutError, RuntimeError, ValueError) as error:  # the last two are of Dask's worker and TLS
            reason = failure_cause(error)
        if reason and reason not in reported:
            log.warning("cannot join the cluster at %s: %s", options.scheduler, reason)
            reported.add(reason)
        with suppress(TimeoutError):
            # Not all workers at once after a restart of the scheduler.
            await asyncio.wait_for(stop.wait(), uniform(REJOIN_INTERVAL / 2, REJOIN_INTERVAL))


async def _check_servers(scheduler: str, installation: Installation) -> None:
    # Not a client, for which the scheduler would compare the versions of all workers.
    security = Security().get_connection_args("worker")
    dask_rpc = rpc(scheduler, timeout=CONNECT_TIMEOUT, connection_args=security)
    async with asyncio.timeout(_CHECK_TIMEOUT), dask_rpc as connection:
        servers: Mapping[str, Any] = await connection.get_metadata(keys=[SERVERS], default={})
    now = time.time()
    live = [server["installation"] for server in servers.values() if _is_live(server, now)]
    differences = [installation.difference(server) for server in live]
    if live and None not in differences:
        raise WrongInstallation(_difference_text(str(differences[0]), installation, live[0]))


def _difference_text(difference: str, installation: Installation, server: Mapping[str, object]) -> str:
    details = "compare the plugins and missing packages that 'convertd doctor' lists"
    if difference == "version":
        details = f"{server['version']}, not {installation.version}"
    elif difference == "blob store":
        details = "CONVERTD_BLOB_URL must be the same"
    return f"the servers of the cluster have another {difference} than this worker: {details}"


def _is_live(server: Mapping[str, Any] | None, now: float) -> bool:
    return server is not None and now - server["seen"] < _SERVER_TIMEOUT


async def _join(options: WorkerOptions, installation: Installation, runner: JobRunner, stop: asyncio.Event) -> None:
    """Is a worker of the cluster until the scheduler is lost, or `stop` is set and the running jobs have ended."""
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
            # Without this, jobs that wait here would count as those of a worker that died.
            await worker.scheduler.retire_workers(workers=[worker.address], close_workers=False, remove=True)
