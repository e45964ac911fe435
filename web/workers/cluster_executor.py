"""The executor that runs jobs on the workers of a Dask cluster."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from distributed import Future
from distributed.scheduler import NoValidWorkerError, NoWorkerError
from distributed.worker import get_data_from_worker

from engine.errors import ExecutorUnavailable, WorkerCrashed
from engine.executor import Task, TaskLimits, TaskResult
from engine.executor.tasks import UnreadableReply, parse_result
from storage.blobs.blob_store import BlobStore
from storage.descriptors import run_in_thread
from storage.errors import StorageError
from storage.ids import new_id
from web.api.schemas.service import Cluster
from web.services.files.work_files import StoredContent, WorkFile
from web.services.operation.closing import complete
from web.workers.cluster_jobs import MAX_INLINE, ClusterTask, FileContent, Installation, run_job
from web.workers.connection import MEMORY, SERIALIZERS, ClusterConnection, ClusterWorker

log = logging.getLogger("convertd.cluster")

_MAX_RUNS = 3  # runs of a job whose workers die
_MAX_OVERHEAD = 45.0  # seconds for files, for a free worker and for repeats, in addition to the job's deadline
_URL_MARGIN = 60.0  # seconds in addition that URLs are valid, because clocks differ
FETCH_TIMEOUT = 10.0  # seconds to fetch a reply from a worker
_BUSY_INTERVAL = 0.1  # seconds until a worker that sends other replies is asked again
_RELEASE_DELAY = 1.0  # seconds
_UNREADABLE = "A worker of the cluster has sent something else than a result."


class _WorkerLost(Exception):
    """The worker died while it ran a job, or before its reply was fetched."""


class _OtherInstallation(ExecutorUnavailable):
    """The worker has another version or other plugins than this server."""


@dataclass(frozen=True)
class _Result:
    """The result of a job as its worker reports it: its content, or the size and the SHA-256 of its blob `key`."""

    result: TaskResult
    data: bytes
    size: int
    digest: str
    key: str


class ClusterExecutor:
    """Runs jobs on the workers of the cluster at `scheduler` that have the same installation as this server.

    Calls `on_resize` with the number of jobs that can run at a time, and their memory in bytes.
    """

    def __init__(self, scheduler: str, installation: Installation, blobs: BlobStore) -> None:
        self._installation = installation
        self.blobs = blobs
        self.connection = ClusterConnection(scheduler, installation, blobs)
        self._retries = 0
        self._retrying = asyncio.Lock()
        self._finished: list[Future[Any]] = []
        self._deletions: set[asyncio.Task[None]] = set()

    async def start(self, on_resize: Callable[[int, int, int], None]) -> None:
        """Connects to the scheduler. Without one, tries again every few seconds."""
        await self.connection.start(on_resize)

    async def close(self) -> None:
        """Disconnects, which ends all jobs. Takes at most 3 s, even if nothing responds."""
        await complete(self.connection.close(), *self._deletions)

    async def ready(self) -> bool:
        """Returns whether a worker can run jobs of this server."""
        return self.connection.client is not None

    def state(self) -> Cluster:
        """The state of the cluster, as of a few seconds ago."""
        return replace(self.connection.state, retries=self._retries)

    async def run_on_files(
        self, task: Task, account: str, inputs: Sequence[WorkFile], output: WorkFile, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        """Runs a job of an account. Raises ConversionError. Cancelling ends the job on its worker.

        Inputs in the blob store are read from there, and a large result stays there. A job whose worker dies is
        repeated, at most twice. Raises WorkerCrashed if the last worker dies too, and ExecutorUnavailable if the
        scheduler, all workers or the blob store do not respond, or the worker sends something else than a result.
        """
        blobs: list[str] = []  # keys to delete; their blobs may exist
        try:
            async with asyncio.timeout(limits.seconds + _MAX_OVERHEAD):
                valid = limits.seconds + _MAX_OVERHEAD + _URL_MARGIN
                files = await self._send(inputs, blobs, valid)
                done = await self._run(ClusterTask("", self._installation, task, account, limits, files, ""), blobs)
                blobs.remove(done.key)
                if done.size <= MAX_INLINE:
                    await output.write(done.data)
                else:
                    delete = partial(self._delete, [done.key])
                    output.stored = StoredContent(done.key, done.size, done.digest, delete)
        except TimeoutError as error:
            raise ExecutorUnavailable("The cluster has not finished the conversion in time.") from error
        except (StorageError, OSError) as error:
            raise ExecutorUnavailable("The blob store of the cluster does not respond.") from error
        else:
            return done.result
        finally:
            self._delete(blobs)

    async def _send(self, inputs: Sequence[WorkFile], blobs: list[str], valid: float) -> tuple[FileContent, ...]:
        """Returns the contents of the inputs, with URLs for `valid` seconds. Adds the keys of new blobs to `blobs`."""
        contents, inline = [], MAX_INLINE
        for file in inputs:
            if file.stored is not None:
                url = await self.blobs.read_url(file.stored.key, valid)
                contents.append(FileContent(file.stored.size, url=url))
            elif file.size <= inline:
                inline -= file.size
                data = await run_in_thread(file.descriptor, os.pread, file.size, 0)
                contents.append(FileContent(file.size, data))
            else:
                blobs.append(new_id("input"))
                await self.blobs.put(blobs[-1], file.descriptor)
                contents.append(FileContent(file.size, url=await self.blobs.read_url(blobs[-1], valid)))
        return tuple(contents)

    async def _run(self, job: ClusterTask, blobs: list[str]) -> _Result:
        for attempt in range(_MAX_RUNS):
            # One at a time: beside a job that kills its workers, others would seem to do so too.
            async with self._retrying if attempt else nullcontext():
                try:
                    return await self._run_once(job, blobs, prefer=not attempt)
                except _WorkerLost as lost:
                    self.connection.refresh()
                    log.warning("a worker died while it ran a job: %s", lost)
            self._retries += attempt < _MAX_RUNS - 1
        raise WorkerCrashed("The workers that ran the conversion ended, one after another.")

    async def _run_once(self, job: ClusterTask, blobs: list[str], *, prefer: bool) -> _Result:
        """Runs a job on a worker, first on the account's preferred one. Raises _WorkerLost."""
        if prefer:
            with self.connection.prefer_worker(job.account, job.job.memory) as preferred:
                if preferred is not None:
                    # Dask keeps a job waiting for its preferred worker if no other is there when that one leaves. It
                    # moves jobs of a busy worker to any idle one, which may have just joined.
                    with suppress(NoValidWorkerError, NoWorkerError, _OtherInstallation):
                        return await self._submit(job, blobs, preferred)
        try:
            return await self._submit(job, blobs)
        except (NoValidWorkerError, NoWorkerError) as error:
            raise ExecutorUnavailable("The cluster has no worker for the conversion.") from error

    async def _submit(self, job: ClusterTask, blobs: list[str], preferred: ClusterWorker | None = None) -> _Result:
        """Runs a job on a worker. Raises _WorkerLost, NoValidWorkerError, NoWorkerError and _OtherInstallation."""
        client, workers = self.connection.client, self.connection.workers
        if client is None:
            raise ExecutorUnavailable("The cluster has no worker for the conversion.")
        # Dask averages the time of jobs by the prefix of their keys.
        key, output = f"{job.job.inputs[0]}-{job.job.target}-{new_id('job')}", new_id("result")
        memory = min(job.job.memory, max(worker.memory for worker in workers))
        resources = {MEMORY: memory}
        if preferred is None:  # Dask moves other jobs to any worker, and one that lacks the resource would end
            resources[self._installation.resource] = 1
        # Each run has a key of its own: a worker that was taken for dead cannot replace the result of another.
        blobs.append(output)
        url = await self.blobs.write_url(output, job.limits.seconds + _MAX_OVERHEAD + _URL_MARGIN)
        self._release_finished()
        future = client.submit(
            run_job,
            replace(job, id=key, output=url),
            key=key,
            pure=False,
            resources=resources,
            workers=[preferred.address] if preferred else None,
            allow_other_workers=preferred is not None,
        )
        try:
            await self._wait(future)
            reply = await self._fetch(future)
        except BaseException:
            future.release()  # ends the job if it runs
            raise
        self._finished.append(future)
        asyncio.get_running_loop().call_later(_RELEASE_DELAY, self._release_finished)
        return _read_reply(reply, job.limits, output)

    def _release_finished(self) -> None:
        """Deletes replies that have been read from the workers, with the next job or after a second.

        Dask's client sends one message in 10 ms: one for each reply would delay the next job.
        """
        while self._finished:
            self._finished.pop().release()

    async def _wait(self, future: Future[Any]) -> None:
        """Waits until a task has returned. Raises _WorkerLost, NoValidWorkerError and NoWorkerError."""
        waiting = asyncio.ensure_future(future.exception())
        try:
            ends: list[asyncio.Future[Any]] = [waiting, self.connection.outage]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not waiting.done():
            raise ExecutorUnavailable("The scheduler of the cluster does not respond.")
        error = waiting.result()
        if isinstance(error, NoValidWorkerError | NoWorkerError):
            raise error
        if error is not None:  # tasks raise nothing: the scheduler, or a worker with other code
            raise _WorkerLost(type(error).__name__)
        if future.cancelled():
            self.connection.refresh()
            raise ExecutorUnavailable("The scheduler of the cluster was lost.")

    async def _fetch(self, future: Future[Any]) -> object:
        """Returns what the task of a future has returned. Raises _WorkerLost, and TimeoutError after 10 s.

        Dask's own method fetches the results of several jobs together, so that one worker would delay them all.
        """
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                return await _fetch(future)
        except (_WorkerLost, TimeoutError):
            raise
        except OSError as error:
            raise _WorkerLost(str(error)) from error
        except Exception as error:  # the errors of deserialization are not documented
            raise ExecutorUnavailable(_UNREADABLE) from error

    def _delete(self, blobs: list[str]) -> None:
        """Deletes blobs in the background. Maintenance deletes what killed servers leave."""
        if blobs:
            task = asyncio.create_task(self.blobs.delete(blobs))
            self._deletions.add(task)
            task.add_done_callback(self._deleted)

    def _deleted(self, task: asyncio.Task[None]) -> None:
        self._deletions.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("files of a job were not deleted: %s", error)


async def _fetch(future: Future[Any]) -> object:
    client, key = future.client, future.key
    assert client is not None
    while holders := (await client.who_has([future]))[key]:
        try:
            response = await get_data_from_worker(
                client.rpc, [key], holders[0], serializers=SERIALIZERS, deserializers=SERIALIZERS
            )
        except Exception:
            client.rpc.remove(holders[0])  # closes connections on which the worker waits until its reply is read
            raise
        if response["status"] == "OK":
            return response["data"][key]
        await asyncio.sleep(_BUSY_INTERVAL)
    raise _WorkerLost("its reply is gone")


def _read_reply(reply: object, limits: TaskLimits, key: str) -> _Result:
    """Checks what a task has returned. Raises the ConversionError of the job, and ExecutorUnavailable."""
    match reply:
        case ("other installation",):
            raise _OtherInstallation("The worker of the cluster has another version or other plugins than the server.")
        case ("unavailable",):
            raise ExecutorUnavailable("The worker of the cluster cannot run the conversion.")
        case (bytes(message), bytes(data), int(size), str(digest)):
            try:
                result, _ = parse_result(message)
            except UnreadableReply as error:
                raise ExecutorUnavailable(_UNREADABLE) from error
            content = len(data) if size <= MAX_INLINE else size
            if content == size == result.outcome.processed_size <= limits.output:
                return _Result(result, data, size, digest, key)
    raise ExecutorUnavailable(_UNREADABLE)
