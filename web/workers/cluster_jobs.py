"""Jobs of a cluster: the messages between servers and workers, and how a worker runs a job.

Messages have names, URLs of blobs, options and limits. Files of at most MAX_INLINE bytes are part of a message, larger
ones are in the blob store. A worker has URLs of the blobs of its jobs only. Its replies are untrusted input.
"""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal, Self, TypeAlias

from distributed import Worker, WorkerPlugin, get_worker

from engine.errors import ConversionError, ExecutorUnavailable, StepFailed
from engine.executor import Executor, Task, TaskLimits, TaskResult
from engine.executor.tasks import error_reply, result_reply
from engine.registry import Registry
from storage.blobs.url_transfers import UrlTransfers
from storage.descriptors import run_in_thread
from storage.errors import NotFound, StorageError
from web.api.errors import ApiError
from web.docs.catalogue import formats_catalogue, tools_catalogue
from web.metrics.service import ClusterWorkerMetrics
from web.services.files.work_files import WorkFile, WorkFiles

log = logging.getLogger("convertd.cluster")

MAX_INLINE = 1 << 20
"""Bytes of all files in one message."""

Reply: TypeAlias = tuple[bytes, bytes, int, str] | tuple[Literal["other installation", "unavailable"]]
"""What a task returns, of types that need no pickle: the reply of the process that ran the job; its result if that is
part of the message, else nothing; the size of the result in bytes, and its SHA-256. Or why the job did not run.
"""


@dataclass(frozen=True)
class Installation:
    """What a server and a worker must have in common: the version and the catalogue, of which this is a digest."""

    version: str
    catalogue: str

    @classmethod
    def of(cls, registry: Registry) -> Self:
        """Describes this process."""
        plugins = {plugin.name: plugin.version for plugin in registry.plugins}
        catalogue = {**formats_catalogue(registry), **tools_catalogue(registry), "plugins": plugins}
        digest = hashlib.sha256(json.dumps(catalogue, sort_keys=True).encode()).hexdigest()
        return cls(version("convertd"), digest[:12])

    @property
    def resource(self) -> str:
        """The name of the Dask resource whose quantity is the number of jobs that a worker can run at a time.

        Jobs of this installation need one, so that no worker of another installation receives them.
        """
        return f"convertd {self.version} {self.catalogue}"

    def difference(self, other: Mapping[str, object]) -> str | None:
        """Returns the first property that differs, as a noun; None if there is none.

        `other` has the values of an installation by name. Another version may have other names.
        """
        for name, value in asdict(self).items():
            if other.get(name) != value:
                return {"catalogue": "set of plugins or formats"}.get(name, name)
        return None


@dataclass(frozen=True)
class FileContent:
    """A file of `size` bytes: its `data`, or the `url` of its blob."""

    size: int
    data: bytes | None = None
    url: str = ""


@dataclass(frozen=True)
class ClusterTask:
    """A job of an account. `id` is the key of its Dask task, `output` the URL by which a large result is stored."""

    id: str
    installation: Installation
    job: Task
    account: str
    limits: TaskLimits
    inputs: tuple[FileContent, ...]
    output: str


async def run_job(job: ClusterTask) -> Reply:
    """Runs a job on the worker that executes this task."""
    worker = get_worker()
    runner = worker.plugins[JobRunner.name]
    assert isinstance(runner, JobRunner)
    # Here the job has not started; `transition` ends jobs that run.
    if worker.state.tasks[job.id].state == "cancelled":
        return ("unavailable",)
    return await runner.run(job)


class JobRunner(WorkerPlugin):
    """Runs the jobs of a worker. A job ends early if the scheduler releases its task, and with the worker."""

    name = "convertd"

    def __init__(
        self,
        installation: Installation,
        executor: Executor,
        transfers: UrlTransfers,
        work_files: WorkFiles,
        metrics: ClusterWorkerMetrics,
    ) -> None:
        self.installation = installation
        self.transfers = transfers
        self._executor = executor
        self._work_files = work_files
        self._metrics = metrics
        self._running: dict[str, asyncio.Task[Reply]] = {}

    def sample(self) -> None:
        """Sets the metrics that are read at scrape time."""
        self._metrics.running.set(len(self._running))

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return len(self._running)

    async def run(self, job: ClusterTask) -> Reply:
        """Runs a job. Raises nothing: Dask would send the exception as a pickle, which servers do not read."""
        if difference := self.installation.difference(asdict(job.installation)):
            log.warning("a server has another %s than this worker, which does not run its job", difference)
            return ("other installation",)
        task = self._running[job.id] = asyncio.create_task(self._run(job))
        try:
            await asyncio.wait([task])
            error = None if task.cancelled() else task.exception()
            result = "cancelled" if task.cancelled() else "succeeded" if error is None else "failed"
            self._metrics.jobs.labels(result).inc()
            if task.cancelled():  # if a server waits for it, the worker has left the cluster
                return ("unavailable",)
            return task.result() if error is None else _failure(error)
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

    async def _run(self, job: ClusterTask) -> Reply:
        with ExitStack() as stack:
            inputs = [await self._receive(stack, job.account, content) for content in job.inputs]
            output = stack.enter_context(self._work_files.create(job.account))
            result = await self._executor.run(job.job, job.account, inputs, output.descriptor, job.limits)
            await output.seal(result.outcome.processed_size)
            return await self._reply(result, output, job.output)

    async def _receive(self, stack: ExitStack, account: str, content: FileContent) -> int:
        file = stack.enter_context(self._work_files.create(account))
        async for block in self._content(content):
            await file.write(block)
        await file.flush()
        return file.descriptor

    async def _content(self, content: FileContent) -> AsyncIterator[bytes]:
        """Yields the bytes of a file. Raises NotFound, also if its blob is too short, and StoreUnavailable."""
        if content.data is not None:
            yield content.data
            return
        received = 0
        async for block in self.transfers.read(content.url, content.size):
            received += len(block)
            yield block
        if received != content.size:
            raise NotFound("file")

    async def _reply(self, result: TaskResult, output: WorkFile, url: str) -> Reply:
        reply = result_reply(result, reusable=False)
        size = output.size
        digest = await output.digest()
        if size <= MAX_INLINE:
            return reply, await run_in_thread(output.descriptor, os.pread, size, 0), size, digest
        await self.transfers.write(url, output.descriptor)
        return reply, b"", size, digest


def _failure(error: BaseException) -> Reply:
    match error:
        case ExecutorUnavailable():
            log.warning("a job cannot run: %s", error)
        case ConversionError():
            return error_reply(error), b"", 0, ""
        case StorageError() | ApiError() | OSError():
            log.warning("the files of a job cannot be read or written: %s", error)
        case _:
            log.error("a job failed unexpectedly", exc_info=error)
            return error_reply(StepFailed("The worker of the cluster failed.")), b"", 0, ""
    return ("unavailable",)
