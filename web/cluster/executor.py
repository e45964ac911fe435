"""The executor that runs jobs on the workers of a Dask cluster."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from distributed import CancelledError, Future, KilledWorker
from distributed.scheduler import NoValidWorkerError, NoWorkerError

from engine.errors import ConversionError, ExecutorUnavailable, WorkerCrashed
from engine.executor import Job, JobLimits, JobResult
from storage.blobs.blob_store import BlobStore
from storage.descriptors import run_in_thread, write_all
from storage.errors import StorageError
from storage.ids import new_id
from web.api.schemas.service import Cluster
from web.cluster.connection import MEMORY, ClusterConnection, ClusterWorker
from web.cluster.jobs import (
    MAX_INLINE,
    ClusterJob,
    ClusterResult,
    FileContent,
    Installation,
    OtherInstallation,
    receive_file,
    run_job,
    send_file,
)

log = logging.getLogger("convertd.cluster")

_MAX_RUNS = 3  # runs of a job whose workers die
_MAX_OVERHEAD = 45.0  # seconds for files, for a free worker and for repeats, in addition to the job's deadline
CLOSE_TIMEOUT = 3.0  # seconds to delete files and to disconnect
_RELEASE_DELAY = 1.0  # seconds


class ClusterExecutor:
    """Runs jobs on the workers of the cluster at `scheduler` that have the same installation as this server.

    Calls `on_resize` with the number of jobs that can run at a time, and their memory in bytes.
    """

    def __init__(self, scheduler: str, installation: Installation, blobs: BlobStore) -> None:
        self._installation = installation
        self._blobs = blobs
        self.connection = ClusterConnection(scheduler, installation)
        self._retries = 0
        self._retrying = asyncio.Lock()
        self._finished: list[Future[Any]] = []
        self._deletions: set[asyncio.Task[None]] = set()

    async def start(self, on_resize: Callable[[int, int], None]) -> None:
        """Connects to the scheduler. Without one, tries again every few seconds."""
        await self.connection.start(on_resize)

    async def close(self) -> None:
        """Disconnects, which ends all jobs. Takes at most 3 s, even if nothing responds."""
        closing = [asyncio.ensure_future(self.connection.close()), *self._deletions]
        _, late = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
        for task in late:
            task.cancel()

    async def ready(self) -> bool:
        """Returns whether a worker can run jobs of this server."""
        return self.connection.client is not None

    def state(self) -> Cluster:
        """The state of the cluster, as of a few seconds ago."""
        return replace(self.connection.state, retries=self._retries)

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        """Runs a job of an account. Raises ConversionError. Cancelling ends the job on its worker.

        A job whose worker dies is repeated, at most twice. Raises WorkerCrashed if the last worker dies too, and
        ExecutorUnavailable if the scheduler, all workers or the blob store do not respond.
        """
        blobs: list[str] = []  # keys to delete; their blobs may exist
        try:
            async with asyncio.timeout(limits.seconds + _MAX_OVERHEAD):
                files = await self._send(inputs, blobs)
                blobs.append(new_id("result"))
                outcome = await self._run(ClusterJob("", self._installation, job, account, limits, files, blobs[-1]))
                if isinstance(outcome, ConversionError):
                    raise outcome
                async for block in receive_file(self._blobs, outcome.file):
                    await run_in_thread(output, write_all, block)
        except TimeoutError as error:
            raise ExecutorUnavailable("The cluster has not finished the conversion in time.") from error
        except (StorageError, OSError) as error:
            raise ExecutorUnavailable("The blob store of the cluster does not respond.") from error
        else:
            if not outcome.file.key:
                blobs.pop()
            return outcome.result
        finally:
            self._delete(blobs)

    async def _send(self, inputs: Sequence[int], blobs: list[str]) -> tuple[FileContent, ...]:
        """Returns the contents of the inputs. Adds the keys of stored ones to `blobs`."""
        contents, inline = [], MAX_INLINE
        for descriptor in inputs:
            blobs.append(new_id("input"))
            content = await send_file(self._blobs, descriptor, blobs[-1], inline)
            if not content.key:
                blobs.pop()
                inline -= content.size
            contents.append(content)
        return tuple(contents)

    async def _run(self, job: ClusterJob) -> ClusterResult | ConversionError:
        for attempt in range(_MAX_RUNS):
            # One at a time: beside a job that kills its workers, others would seem to do so too.
            async with self._retrying if attempt else nullcontext():
                try:
                    return await self._run_once(job, prefer=not attempt)
                except KilledWorker as error:
                    self.connection.refresh()
                    log.warning("a worker died while it ran a job: %s", error.last_worker.address)
            self._retries += attempt < _MAX_RUNS - 1
        raise WorkerCrashed("The workers that ran the conversion ended, one after another.")

    async def _run_once(self, job: ClusterJob, *, prefer: bool) -> ClusterResult | ConversionError:
        """Runs a job on a worker, first on the account's preferred one. Raises KilledWorker if the worker dies."""
        if prefer:
            with self.connection.prefer_worker(job.account, job.job.memory) as preferred:
                if preferred is not None:
                    # Dask keeps a job waiting for its preferred worker if no other is there when that one leaves. It
                    # moves jobs of a busy worker to any idle one, which may have just joined.
                    with suppress(NoValidWorkerError, NoWorkerError, OtherInstallation):
                        return await self._submit(job, preferred)
        try:
            return await self._submit(job)
        except (NoValidWorkerError, NoWorkerError) as error:
            raise ExecutorUnavailable("The cluster has no worker for the conversion.") from error

    async def _submit(self, job: ClusterJob, preferred: ClusterWorker | None = None) -> ClusterResult | ConversionError:
        """Runs a job on a worker. Raises KilledWorker, NoValidWorkerError, NoWorkerError and OtherInstallation."""
        client, workers = self.connection.client, self.connection.workers
        if client is None:
            raise ExecutorUnavailable("The cluster has no worker for the conversion.")
        # Dask averages the time of jobs by the prefix of their keys.
        key = f"{job.job.inputs[0]}-{job.job.target}-{new_id('job')}"
        memory = min(job.job.memory, max(worker.memory for worker in workers))
        resources = {MEMORY: memory}
        if preferred is None:  # Dask moves other jobs to any worker, and one that lacks the resource would end
            resources[self._installation.resource] = 1
        self._release_finished()
        future = client.submit(
            run_job,
            replace(job, id=key),
            key=key,
            pure=False,
            resources=resources,
            workers=[preferred.address] if preferred else None,
            allow_other_workers=preferred is not None,
        )
        try:
            outcome = await self._outcome(future)
        except BaseException:
            future.release()  # ends the job if it runs
            raise
        self._finished.append(future)
        asyncio.get_running_loop().call_later(_RELEASE_DELAY, self._release_finished)
        if isinstance(outcome, OtherInstallation):
            raise outcome
        return outcome

    def _release_finished(self) -> None:
        """Deletes results that have been read from the workers, with the next job or after a second.

        Dask's client sends one message in 10 ms: one for each result would delay the next job.
        """
        while self._finished:
            self._finished.pop().release()

    async def _outcome(self, future: Future[Any]) -> ClusterResult | ConversionError:
        # Never cancelled: Dask fetches the results of several jobs together, and would cancel them all. This task ends
        # when the future is released.
        waiting: asyncio.Task[ClusterResult | ConversionError] = asyncio.ensure_future(future)
        waiting.add_done_callback(_retrieve_exception)
        try:
            ends: list[asyncio.Future[Any]] = [waiting, self.connection.outage]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ExecutorUnavailable("The scheduler of the cluster does not respond.")
            return waiting.result()
        except (CancelledError, OSError) as error:
            self.connection.refresh()
            raise ExecutorUnavailable("The scheduler of the cluster was lost.") from error

    def _delete(self, blobs: list[str]) -> None:
        """Deletes blobs in the background. Maintenance deletes what killed servers leave."""
        if blobs:
            task = asyncio.create_task(self._blobs.delete(blobs))
            self._deletions.add(task)
            task.add_done_callback(self._deleted)

    def _deleted(self, task: asyncio.Task[None]) -> None:
        self._deletions.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("files of a job were not deleted: %s", error)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # asyncio logs errors that are not retrieved
