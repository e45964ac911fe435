"""The executor that runs jobs on this machine, in worker processes that each belong to one account."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Protocol

from engine import sandbox
from engine.errors import ExecutorUnavailable, StepFailed, TimedOut
from engine.executor import jobs, quotas
from engine.executor.forkserver import ForkServer
from engine.executor.jobs import Job, JobLimits, JobResult, Request
from engine.executor.pool import Worker, WorkerPool
from engine.executor.single import SingleWorker

JOBS_PER_PROCESS = 100
"""The default number of jobs of an account that a worker process runs."""

_ATTEMPTS = 5  # worker processes that are tried until one starts the job
_EXIT_TIMEOUT = 5.0  # seconds for a process that closed its connection to end


class Executor(Protocol):
    """Runs jobs."""

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = ...
    ) -> JobResult:
        """Runs a job of an account to its end. Raises ConversionError. Cancelling kills the job.

        `inputs` are descriptors of readable files, `output` is the descriptor of a file to which the result is written.
        The caller closes them.
        """

    async def ready(self) -> bool:
        """Returns whether jobs can run now."""


class LocalExecutor:
    """Runs at most `workers` jobs at a time; others wait. Worker processes have the sandbox `layers`.

    A worker process belongs to the account of its first job and runs up to `jobs_per_process` jobs of that account.
    The jobs of one account can share the memory of a process; jobs of two accounts never do. `pool` replaces the worker
    processes that the other parameters describe.
    """

    def __init__(
        self,
        workers: int,
        layers: Collection[str] = sandbox.LAYERS,
        jobs_per_process: int = JOBS_PER_PROCESS,
        *,
        pool: WorkerPool | SingleWorker | None = None,
    ) -> None:
        self._pool = pool or WorkerPool(ForkServer(layers), workers, jobs_per_process)
        self._slots = asyncio.Semaphore(workers)

    async def start(self) -> None:
        """Starts the fork server and spare processes, which otherwise happens at the first job.

        Raises ExecutorUnavailable.
        """
        await self._pool.start()

    async def close(self) -> None:
        """Ends all processes."""
        await self._pool.close()

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        """Runs a job of an account. Raises ConversionError. Cancelling kills the process."""
        async with self._slots, _deadline(limits.seconds):
            with reopen(inputs) as sources:
                return await self._run(job, account, [*sources, output], limits)

    async def _run(self, job: Job, account: str, descriptors: list[int], limits: JobLimits) -> JobResult:
        output = descriptors[-1]
        for _ in range(_ATTEMPTS):
            os.ftruncate(output, 0)
            os.lseek(output, 0, os.SEEK_SET)
            with suppress(_NotStarted):
                async with self._pool.worker(account, isolated=job.isolated) as worker:
                    request = Request.of(job, account, limits, final=worker.final)
                    result, reusable = jobs.parse_result(await _request(worker, request, descriptors))
                    written = os.fstat(output).st_size
                    if result.outcome.processed_size != written or written > limits.output:
                        raise StepFailed("The conversion's process reported a size that differs from its file.")
                    worker.succeeded = reusable
                    return result
        raise ExecutorUnavailable("No process can be started for the conversion.")

    async def examine(self) -> sandbox.SandboxReport:
        """Runs the sandbox self-test in a process of its own. Raises ConversionError."""
        limits = JobLimits()
        async with self._slots, _deadline(limits.seconds), self._pool.worker("", isolated=True) as worker:
            return jobs.parse_report(await _request(worker, Request("", limits, final=True), []))

    async def ready(self) -> bool:
        """Returns whether the fork server can fork now."""
        return await self._pool.ready()


class _NotStarted(Exception):
    """The worker process ended before it read a file of the job, so that another can run the job."""


async def _request(worker: Worker, request: Request, descriptors: list[int]) -> bytes:
    """Returns the worker's reply. Raises ConversionError if it ends without one, and _NotStarted."""
    process, limits = worker.process, request.limits
    watching = quotas.wait_until_exceeded(process.pid, process.folder, limits, worker.initial[0])
    quota = asyncio.create_task(watching)
    quota.add_done_callback(lambda task: None if task.cancelled() else process.kill())
    reply = b""
    try:
        with suppress(ConnectionError):
            socket.send_fds(process.connection, [request.encode()], descriptors)
            # One byte more than a reply can have: a longer message is unreadable.
            reply = await asyncio.get_running_loop().sock_recv(process.connection, jobs.MAX_MESSAGE + 1)
        if not reply:
            # The process reads through the same open files, so their offsets are shared.
            if not any(os.lseek(descriptor, 0, os.SEEK_CUR) for descriptor in descriptors):
                raise _NotStarted
            exitcode = await process.exitcode(_EXIT_TIMEOUT)
            raise quota.result() if quota.done() else jobs.exit_error(exitcode)
        return reply
    finally:
        quota.cancel()


@contextmanager
def reopen(files: Sequence[int]) -> Iterator[list[int]]:
    """Opens the files again, so that a job can neither write to them nor depend on their position."""
    with ExitStack() as stack:
        opened = []
        for descriptor in files:
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # opening a named pipe would block
                    raise StepFailed("The files of the job must be regular files.")
                opened.append(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                raise StepFailed("The files of the job cannot be opened.") from error
            stack.callback(os.close, opened[-1])
        yield opened


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"The conversion took longer than {seconds:g} s.", details={"max_seconds": seconds}) from None
