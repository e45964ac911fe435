"""Jobs of a cluster: the messages between servers and workers, and how a worker runs a job.

Messages have names, keys of blobs, options and limits. Files of at most MAX_INLINE bytes are part of a message, larger
ones are in the blob store.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Self

from distributed import Worker, WorkerPlugin, get_worker

from config.settings import Settings
from engine.errors import ConversionError, ExecutorUnavailable
from engine.executor import Executor, Job, JobLimits, JobResult
from engine.registry import Registry
from storage.blobs.blob_store import BlobStore
from storage.descriptors import run_in_thread
from storage.errors import NotFound, StorageError
from web.api.errors import ApiError
from web.metrics.service import ClusterWorkerMetrics
from web.services.catalogue import formats_catalogue, tools_catalogue
from web.services.work_files import WorkFiles

MAX_INLINE = 1 << 20
"""Bytes of all files in one message."""


@dataclass(frozen=True)
class Installation:
    """What a server and a worker must have in common: the version, the catalogue and the blob store.

    `catalogue` and `blob_store` are digests.
    """

    version: str
    catalogue: str
    blob_store: str

    @classmethod
    def of(cls, registry: Registry, settings: Settings) -> Self:
        """Describes this process."""
        plugins = {plugin.name: plugin.version for plugin in registry.plugins}
        catalogue = {**formats_catalogue(registry), **tools_catalogue(registry), "plugins": plugins}
        url = settings.blob_url.get_secret_value() if settings.blob_url else ""
        return cls(version("convertd"), _digest(json.dumps(catalogue, sort_keys=True)), _digest(url))

    @property
    def resource(self) -> str:
        """The name of the Dask resource whose quantity is the number of jobs that a worker can run at a time.

        Jobs of this installation need one, so that no worker of another installation receives them.
        """
        return f"convertd {self.version} {self.catalogue} {self.blob_store}"

    def difference(self, other: Mapping[str, object]) -> str | None:
        """Returns the first property that differs, as a noun; None if there is none.

        `other` has the values of an installation by name. Another version may have other names.
        """
        for name, value in asdict(self).items():
            if other.get(name) != value:
                return {"catalogue": "set of plugins or formats"}.get(name, name.replace("_", " "))
        return None


@dataclass(frozen=True)
class FileContent:
    """A file of `size` bytes: its `data`, or the `key` of its blob."""

    size: int
    data: bytes | None = None
    key: str = ""


@dataclass(frozen=True)
class ClusterJob:
    """A job of an account. `id` is the key of its Dask task, `output` the key of the blob for a large result."""

    id: str
    installation: Installation
    job: Job
    account: str
    limits: JobLimits
    inputs: tuple[FileContent, ...]
    output: str


@dataclass(frozen=True)
class ClusterResult:
    """The result of a job and its file."""

    result: JobResult
    file: FileContent


class OtherInstallation(ExecutorUnavailable):
    """The worker has another version, other plugins or another blob store than the server of the job."""


async def send_file(blobs: BlobStore, descriptor: int, key: str, max_inline: int = MAX_INLINE) -> FileContent:
    """Returns the content of an open file, which is stored under `key` if it has more than `max_inline` bytes.

    Raises StoreUnavailable.
    """
    size = os.fstat(descriptor).st_size
    if size <= max_inline:
        return FileContent(size, data=await run_in_thread(descriptor, os.pread, size, 0))
    await blobs.put(key, descriptor)
    return FileContent(size, key=key)


async def receive_file(blobs: BlobStore, content: FileContent) -> AsyncIterator[bytes]:
    """Yields the bytes of a file. Raises NotFound, also if its blob is too short, and StoreUnavailable."""
    if content.data is not None:
        yield content.data
        return
    received = 0
    async for block in blobs.read(content.key, 0, content.size):
        received += len(block)
        yield block
    if received != content.size:
        raise NotFound("file")


async def run_job(job: ClusterJob) -> ClusterResult | ConversionError:
    """Runs a job on the worker that executes this task."""
    worker = get_worker()
    runner = worker.plugins[JobRunner.name]
    assert isinstance(runner, JobRunner)
    # Here the job has not started; `transition` ends jobs that run.
    if worker.state.tasks[job.id].state == "cancelled":
        return ExecutorUnavailable("The job was cancelled.")
    return await runner.run(job)


class JobRunner(WorkerPlugin):
    """Runs the jobs of a worker. A job ends early if the scheduler releases its task, and with the worker."""

    name = "convertd"

    def __init__(
        self,
        installation: Installation,
        executor: Executor,
        blobs: BlobStore,
        work_files: WorkFiles,
        metrics: ClusterWorkerMetrics,
    ) -> None:
        self.installation = installation
        self.blobs = blobs
        self._executor = executor
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
        if difference := self.installation.difference(asdict(job.installation)):
            return OtherInstallation(f"The worker of the cluster has another {difference} than the server.")
        task = self._running[job.id] = asyncio.create_task(self._run(job))
        try:
            await asyncio.wait([task])
            outcome = _outcome(task)
            result = "failed" if isinstance(outcome, ConversionError) else "succeeded"
            self._metrics.jobs.labels("cancelled" if task.cancelled() else result).inc()
            return outcome
        finally:
            del self._running[job.id]
            task.cancel()

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
            result = await self._executor.run(job.job, job.account, inputs, output.descriptor, job.limits)
            await output.seal(result.outcome.processed_size)
            return ClusterResult(result, await send_file(self.blobs, output.descriptor, job.output))

    async def _receive(self, stack: ExitStack, account: str, content: FileContent) -> int:
        file = stack.enter_context(self._work_files.create(account))
        async for block in receive_file(self.blobs, content):
            await file.write(block)
        await file.flush()
        return file.descriptor


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
