"""The executor that runs jobs on this machine: a process per job, forked ahead of demand by fork servers."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Protocol, TypeVar

from engine import sandbox
from engine.errors import ConversionError, StepFailed, TimedOut
from engine.executor import disk_quota, jobs
from engine.executor.forkserver import ForkServer, JobProcess
from engine.executor.jobs import Job, JobLimits, JobResult

_T = TypeVar("_T")
_MAX_REPLY = 1 << 20  # bytes; a worker never sends that much
_EXIT_TIMEOUT = 5.0  # seconds for a process to end after its connection is closed


class Executor(Protocol):
    """Runs jobs."""

    async def run(self, job: Job, inputs: Sequence[int], output: int, limits: JobLimits = ...) -> JobResult:
        """Runs a job to its end. Raises ConversionError. Cancelling kills the job.

        `inputs` are descriptors of readable files, `output` is that of a file to which the result is written. The
        caller closes them.
        """

    async def ready(self) -> bool:
        """Returns whether jobs can run now."""


class LocalExecutor:
    """Runs at most `workers` jobs at a time; others wait. Worker processes have the sandbox `layers`.

    There are two fork servers: one that has loaded all modules, and a light one without the lazily imported modules,
    whose forks start and end faster. Jobs that are not lazy run in processes of the light one.
    """

    def __init__(self, workers: int, layers: Collection[str] = sandbox.LAYERS) -> None:
        self._light = Pool(ForkServer(layers, full=False), workers)
        self._full = Pool(ForkServer(layers), workers)
        self._slots = asyncio.Semaphore(workers)

    async def start(self) -> None:
        """Starts both fork servers and their idle processes, which otherwise happens at the first job.

        Raises WorkerCrashed.
        """
        await _gather_all(self._light.start(), self._full.start())

    async def close(self) -> None:
        """Ends all processes, after pending clean-up."""
        await _gather_all(self._light.close(), self._full.close())

    async def run(self, job: Job, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()) -> JobResult:
        """Runs a job in a new process. Raises ConversionError. Cancelling kills the process.

        A job that uses a module which its light process must not load runs again in a full one, within the same
        deadline.
        """
        async with self._slots, _deadline(limits.seconds):
            if not job.lazy:
                with suppress(jobs.ModuleMissing):
                    return await _run_job(self._light, job, inputs, output, limits)
            return await _run_job(self._full, job, inputs, output, limits)

    async def examine(self) -> sandbox.SandboxReport:
        """Runs the sandbox self-test in a process of each fork server, and combines the results.

        Raises ConversionError.
        """
        # Both, because the system can refuse a layer to the second fork server, such as one more namespace.
        async with self._slots, _deadline(JobLimits().seconds):
            light, full = await _gather_all(
                *(_request(pool, None, JobLimits(), []) for pool in (self._light, self._full))
            )
        return jobs.parse_report(light).common(jobs.parse_report(full))

    async def ready(self) -> bool:
        """Returns whether both fork servers can fork now."""
        return all(await _gather_all(self._light.ready(), self._full.ready()))


class Pool:
    """Idle worker processes of a fork server, `size` of them. Each is used for one job and then replaced."""

    def __init__(self, forkserver: ForkServer, size: int) -> None:
        self._forkserver = forkserver
        self._size = size
        self._idle: deque[JobProcess] = deque()
        self._forking = 0  # number of forks in progress
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts the fork server and fills the pool. Raises WorkerCrashed."""
        for _ in range(self._size):
            await self._fork()

    async def close(self) -> None:
        """Waits for background tasks, then ends the idle processes and the fork server."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._idle:
            await asyncio.to_thread(self._idle.popleft().close, _EXIT_TIMEOUT)
        await asyncio.to_thread(self._forkserver.close)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[JobProcess]:
        """A process for one job, killed on exit with all processes of its session. Raises WorkerCrashed."""
        while not self._idle:
            # Shielded: if the caller is cancelled, the new process joins the pool.
            await asyncio.shield(self._spawn(self._fork()))
        process = self._idle.popleft()
        try:
            yield process
        finally:
            process.kill()
            # After the job, not beside it: forking competes for CPU.
            self._spawn(self._replace(process))

    async def ready(self) -> bool:
        """Returns whether the fork server can fork now."""
        return await asyncio.to_thread(self._can_fork)

    def _can_fork(self) -> bool:
        # Forks and closes in one thread, so that a cancelled caller leaves no process behind.
        try:
            self._forkserver.fork().close(_EXIT_TIMEOUT)
        except ConversionError:
            return False
        return True

    async def _replace(self, process: JobProcess) -> None:
        await asyncio.gather(self._refill(), asyncio.to_thread(process.close, _EXIT_TIMEOUT))

    async def _refill(self) -> None:
        if len(self._idle) + self._forking < self._size:
            await self._fork()

    async def _fork(self) -> None:
        self._forking += 1
        try:
            self._idle.append(await asyncio.to_thread(self._forkserver.fork))
        finally:
            self._forking -= 1

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _run_job(pool: Pool, job: Job, inputs: Sequence[int], output: int, limits: JobLimits) -> JobResult:
    os.ftruncate(output, 0)  # a first attempt may have written to it
    os.lseek(output, 0, os.SEEK_SET)
    with _reopen(inputs) as sources:
        result = jobs.parse_result(await _request(pool, job, limits, [*sources, output]))
        written = os.fstat(output).st_size
        if result.size != written or written > limits.output:
            raise StepFailed("The conversion's process reported a size that differs from its output file.")
        return result


async def _request(pool: Pool, job: Job | None, limits: JobLimits, descriptors: list[int]) -> bytes:
    """Returns the reply of a new process to a job, or to None, a request for a sandbox self-test.

    The process and all processes of its session have been killed when this returns.
    """
    async with pool.acquire() as process:
        quota = asyncio.create_task(disk_quota.wait_until_exceeded(process.folder, limits.scratch, limits.files))
        quota.add_done_callback(lambda task: None if task.cancelled() else process.kill())
        try:
            reply = await _exchange(process.connection, pickle.dumps((job, limits)), descriptors)
            if not reply:
                exitcode = await asyncio.to_thread(process.exitcode)
                raise jobs.quota_error(limits) if quota.done() else jobs.exit_error(exitcode)
            return reply
        finally:
            quota.cancel()


async def _exchange(connection: socket.socket, request: bytes, descriptors: list[int]) -> bytes:
    """Sends a request with open files and returns the reply; empty if the process ended without one."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        sent = socket.send_fds(connection, [request], descriptors)
        await loop.sock_sendall(connection, request[sent:])
        connection.shutdown(socket.SHUT_WR)
        reply = bytearray()
        while len(reply) <= _MAX_REPLY and (chunk := await loop.sock_recv(connection, 65_536)):
            reply += chunk
        return bytes(reply)
    return b""


@contextmanager
def _reopen(files: Sequence[int]) -> Iterator[list[int]]:
    """Opens the files again, so that a job can neither write to them nor depend on their position."""
    with ExitStack() as stack:
        opened = []
        for descriptor in files:
            try:
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


async def _gather_all(*awaitables: Awaitable[_T]) -> list[_T]:
    """Returns all results. Raises the first exception, but only after all awaitables have ended."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
