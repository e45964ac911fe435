"""Runs jobs, each in a process of its own, forked ahead by a fork server and gone with its job."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from engine import sandbox, scratch, verdicts
from engine.errors import StepFailed, TimedOut
from engine.forkserver import ForkServer
from engine.pool import Pool
from engine.worker import Done, Input, Job, Limits

__all__ = ["Done", "Executor", "Input", "Job", "Limits", "LocalExecutor"]

_T = TypeVar("_T")
_MAX_ANSWER = 1 << 20  # bytes; more is no answer of ours


class Executor(Protocol):
    """Whatever runs jobs."""

    async def run(self, job: Job, limits: Limits = ...) -> Done:
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
        await _both(self._light.start(), self._full.start())

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes."""
        await _both(self._light.close(), self._full.close())

    async def run(self, job: Job, limits: Limits = Limits()) -> Done:
        """Runs the job in a fresh process. Raises ConversionError; cancelling kills the process.

        A job that turns out to need what its process goes without is run again by one that has it, in the same time.
        """
        async with self._slots, _within(limits.seconds):
            if not job.lazy:
                with suppress(verdicts.Unequipped):
                    return await _done(self._light, job, limits)
            return await _done(self._full, job, limits)

    async def examine(self) -> sandbox.Findings:
        """What processes of both kinds find out about their sandbox. Raises ConversionError."""
        # Both are asked: a system may have no room for the second's walls.
        async with self._slots, _within(Limits().seconds):
            light, full = await _both(*(_asked(pool, None, Limits(), []) for pool in (self._light, self._full)))
        return verdicts.findings(light).common(verdicts.findings(full))

    async def ready(self) -> bool:
        return all(await _both(self._light.ready(), self._full.ready()))


async def _both(*work: Awaitable[_T]) -> list[_T]:
    """What they return. Raises what one of them raises, but not before the other has ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"The conversion took longer than {seconds:g} s.", details={"max_seconds": seconds}) from None


async def _done(pool: Pool, job: Job, limits: Limits) -> Done:
    async with _opened([path for path, _ in job.inputs], job.output) as descriptors:
        done = verdicts.outcome(await _asked(pool, job, limits, descriptors))
        written = os.fstat(descriptors[-1]).st_size
        if done.size != written or written > limits.output:
            raise StepFailed("The conversion's process told another size than it wrote.")
        return done


async def _asked(pool: Pool, job: Job | None, limits: Limits, descriptors: list[int]) -> bytes:
    """The answer of a fresh process, which is dead by then, and so is all that it started."""
    async with pool.seat() as seat:
        filled = asyncio.create_task(scratch.overflowing(seat.folder, limits.scratch, limits.files))
        filled.add_done_callback(lambda watch: None if watch.cancelled() else seat.kill())
        try:
            answer = await _exchange(seat.line, pickle.dumps((job, limits)), descriptors)
            if not answer:
                exitcode = await asyncio.to_thread(seat.exitcode)
                raise verdicts.overflow(limits) if filled.done() else verdicts.death(exitcode)
            return answer
        finally:
            filled.cancel()


@asynccontextmanager
async def _opened(sources: list[Path], output: Path) -> AsyncIterator[list[int]]:
    """The sources to read and the output to write, as descriptors; after an error there is no output."""
    descriptors: list[int] = []
    opening = asyncio.create_task(asyncio.to_thread(_open, descriptors, sources, output))
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


def _open(descriptors: list[int], sources: list[Path], output: Path) -> None:
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
        while len(answer) <= _MAX_ANSWER and (chunk := await loop.sock_recv(line, 65_536)):
            answer += chunk
        return bytes(answer)
    return b""
