"""Runs jobs, each in a process of its own, forked ahead by a fork server and gone with its job."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from engine import sandbox
from engine.errors import ConversionError, StepFailed, TimedOut
from engine.executor import disk_quota, jobs
from engine.executor.forkserver import ForkServer, JobProcess
from engine.executor.jobs import Job, JobInput, JobLimits, JobResult

__all__ = ["Executor", "Job", "JobInput", "JobLimits", "JobResult", "LocalExecutor"]

_T = TypeVar("_T")
_MAX_REPLY = 1 << 20  # bytes; more is no answer of ours


class Executor(Protocol):
    """Whatever runs jobs."""

    async def run(self, job: Job, limits: JobLimits = ...) -> JobResult:
        """Runs the job to its end. Raises ConversionError; cancelling kills the job."""

    async def ready(self) -> bool:
        """Whether jobs can be run now."""


class LocalExecutor:
    """At most `workers` jobs at a time on this machine; more wait. `start` forks the first processes ahead.

    Each process puts up the `layers` of the sandbox that this system has. Jobs that use no lazy modules are forked
    from a process that has loaded none: the less there is, the sooner it is copied, and gone.
    """

    def __init__(self, workers: int, layers: Collection[str] = sandbox.LAYERS) -> None:
        self._light = Pool(ForkServer(layers, full=False), workers)
        self._full = Pool(ForkServer(layers), workers)
        self._slots = asyncio.Semaphore(workers)

    async def start(self) -> None:
        """Starts the fork servers, and of each a process for every worker. Without, they start when jobs need them."""
        await _gather_all(self._light.start(), self._full.start())

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes."""
        await _gather_all(self._light.close(), self._full.close())

    async def run(self, job: Job, limits: JobLimits = JobLimits()) -> JobResult:
        """Runs the job in a fresh process. Raises ConversionError; cancelling kills the process.

        A job that turns out to need what its process goes without is run again by one that has it, in the same time.
        """
        async with self._slots, _deadline(limits.seconds):
            if not job.lazy:
                with suppress(jobs.ModuleMissing):
                    return await _run_job(self._light, job, limits)
            return await _run_job(self._full, job, limits)

    async def examine(self) -> sandbox.SandboxReport:
        """What processes of both kinds find out about their sandbox. Raises ConversionError."""
        # Both are asked: a system may have no room for the second's walls.
        async with self._slots, _deadline(JobLimits().seconds):
            light, full = await _gather_all(
                *(_ask_process(pool, None, JobLimits(), []) for pool in (self._light, self._full))
            )
        return jobs.parse_report(light).common(jobs.parse_report(full))

    async def ready(self) -> bool:
        return all(await _gather_all(self._light.ready(), self._full.ready()))


async def _gather_all(*work: Awaitable[_T]) -> list[_T]:
    """What they return. Raises what one of them raises, but not before the other has ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"The conversion took longer than {seconds:g} s.", details={"max_seconds": seconds}) from None


async def _run_job(pool: Pool, job: Job, limits: JobLimits) -> JobResult:
    async with _open_files([path for path, _ in job.inputs], job.output) as descriptors:
        done = jobs.parse_result(await _ask_process(pool, job, limits, descriptors))
        written = os.fstat(descriptors[-1]).st_size
        if done.size != written or written > limits.output:
            raise StepFailed("The conversion's process told another size than it wrote.")
        return done


async def _ask_process(pool: Pool, job: Job | None, limits: JobLimits, descriptors: list[int]) -> bytes:
    """The answer of a fresh process, which is dead by then, and so is all that it started."""
    async with pool.seat() as seat:
        filled = asyncio.create_task(disk_quota.wait_until_exceeded(seat.folder, limits.scratch, limits.files))
        filled.add_done_callback(lambda watch: None if watch.cancelled() else seat.kill())
        try:
            answer = await _exchange(seat.line, pickle.dumps((job, limits)), descriptors)
            if not answer:
                exitcode = await asyncio.to_thread(seat.exitcode)
                raise jobs.quota_error(limits) if filled.done() else jobs.exit_error(exitcode)
            return answer
        finally:
            filled.cancel()


@asynccontextmanager
async def _open_files(sources: list[Path], output: Path) -> AsyncIterator[list[int]]:
    """The sources to read and the output to write, as descriptors; after an error there is no output."""
    descriptors: list[int] = []
    opening = asyncio.create_task(asyncio.to_thread(_open_each, descriptors, sources, output))
    try:
        # Shielded: even if nobody waits for them any more, files that are opened are to be closed.
        await asyncio.shield(opening)
        yield descriptors
    except BaseException as error:
        await asyncio.wait([opening])
        await asyncio.to_thread(output.unlink, missing_ok=True)
        if isinstance(error, OSError):
            raise StepFailed("The files of the job cannot be opened.") from error
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _open_each(descriptors: list[int], sources: list[Path], output: Path) -> None:
    """Adds them to the descriptors, one by one. Blocks. Raises OSError."""
    for path in sources:
        descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    descriptors.append(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


async def _exchange(line: socket.socket, request: bytes, descriptors: list[int]) -> bytes:
    """Sends the request and the files, then reads to the end of the answer, which is empty if the process died."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        sent = socket.send_fds(line, [request], descriptors)
        await loop.sock_sendall(line, request[sent:])
        line.shutdown(socket.SHUT_WR)
        answer = bytearray()
        while len(answer) <= _MAX_REPLY and (chunk := await loop.sock_recv(line, 65_536)):
            answer += chunk
        return bytes(answer)
    return b""


_EXIT_TIMEOUT = 5.0  # seconds that a process may take to end after its answer


class Pool:
    """Keeps `size` processes forked ahead once it has started, or once jobs have been run."""

    def __init__(self, forkserver: ForkServer, size: int) -> None:
        self._forkserver = forkserver
        self._size = size
        self._spares: deque[JobProcess] = deque()
        self._awaited = 0  # spares that are being forked
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts the fork server and forks ahead. Raises WorkerCrashed."""
        for _ in range(self._size):
            await self._fork()

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes and the fork server."""
        while self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        while self._spares:
            await asyncio.to_thread(self._spares.popleft().close, _EXIT_TIMEOUT)
        await asyncio.to_thread(self._forkserver.close)

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[JobProcess]:
        """A process that waits for a job, and is killed afterwards with all that it started. Raises WorkerCrashed."""
        while not self._spares:
            # Shielded: a process that nobody waits for any more is a spare.
            await asyncio.shield(self._begun(self._fork()))
        seat = self._spares.popleft()
        try:
            yield seat
        finally:
            seat.kill()
            # Only now: while the job runs, the processor is better left to it.
            self._begun(self._replace(seat))

    async def ready(self) -> bool:
        """Whether there can be a process now."""
        return await asyncio.to_thread(self._forks)

    def _forks(self) -> bool:
        """As `ready`; the process is gone by then, even if nobody waits for the answer. Blocks."""
        try:
            self._forkserver.fork().close(_EXIT_TIMEOUT)
        except ConversionError:
            return False
        return True

    async def _replace(self, seat: JobProcess) -> None:
        await asyncio.gather(self._refill(), asyncio.to_thread(seat.close, _EXIT_TIMEOUT))

    async def _refill(self) -> None:
        if len(self._spares) + self._awaited < self._size:
            await self._fork()

    async def _fork(self) -> None:
        self._awaited += 1
        try:
            self._spares.append(await asyncio.to_thread(self._forkserver.fork))
        finally:
            self._awaited -= 1

    def _begun(self, chore: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task
