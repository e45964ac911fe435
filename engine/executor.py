"""Runs jobs, each in a process of its own, forked ahead by the fork server and gone with its job."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from engine import sandbox
from engine.errors import ConversionError, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.forkserver import ForkServer, Seat
from engine.pipeline import Timing, Warned
from engine.worker import Done, Input, Job, Limits

__all__ = ["Done", "Executor", "Input", "Job", "Limits", "LocalExecutor"]

_PATIENCE = 5.0  # seconds that a process may take to end after its answer
_MAX_ANSWER = 1 << 20  # bytes; more is no answer of ours


class Executor(Protocol):
    """Whatever runs jobs."""

    async def run(self, job: Job, limits: Limits = ...) -> Done:
        """Runs the job to its end. Raises ConversionError; cancelling kills the job."""

    async def ready(self) -> bool:
        """Whether jobs can be run now."""


class LocalExecutor:
    """At most `workers` jobs at a time on this machine; more wait. `start` forks the first processes ahead.

    Each process puts up the `layers` of the sandbox that this system has.
    """

    def __init__(self, workers: int, layers: Collection[str] = sandbox.LAYERS) -> None:
        self._forkserver = ForkServer(layers)
        self._workers = workers
        self._slots = asyncio.Semaphore(workers)
        self._spares: deque[Seat] = deque()
        self._awaited = 0  # spares that are being forked
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts the fork server and a process for every worker."""
        for _ in range(self._workers):
            self._spares.append(await asyncio.to_thread(self._forkserver.fork))

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes."""
        while self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        while self._spares:
            await asyncio.to_thread(self._spares.popleft().close, _PATIENCE)
        await asyncio.to_thread(self._forkserver.close)

    async def run(self, job: Job, limits: Limits = Limits()) -> Done:
        """Runs the job in a fresh process. Raises ConversionError; cancelling kills the process."""
        with _opened([path for path, _ in job.inputs], job.output) as descriptors:
            done = _outcome(await self._asked(job, limits, descriptors))
            written = os.fstat(descriptors[-1]).st_size
            if done.size != written or written > limits.output:
                raise StepFailed("The conversion's process told another size than it wrote.")
            return done

    async def examine(self) -> sandbox.Findings:
        """What a process of this executor finds out about its sandbox. Raises ConversionError."""
        return _findings(await self._asked(None, Limits(), []))

    async def ready(self) -> bool:
        try:
            seat = await asyncio.to_thread(self._forkserver.fork)
        except ConversionError:
            return False
        self._do_later(asyncio.to_thread(seat.close, _PATIENCE))
        return True

    async def _asked(self, job: Job | None, limits: Limits, descriptors: list[int]) -> bytes:
        """The answer of a fresh process, which is dead by then, and so is all that it started."""
        async with self._slots:
            seat = self._spares.popleft() if self._spares else await asyncio.to_thread(self._forkserver.fork)
            try:
                async with asyncio.timeout(limits.seconds):
                    answer = await _exchange(seat.line, pickle.dumps((job, limits)), descriptors)
                if not answer:
                    raise _death(await asyncio.to_thread(seat.exitcode))
                return answer
            except TimeoutError:
                raise TimedOut(
                    f"The conversion took longer than {limits.seconds:g} s.",
                    details={"max_seconds": limits.seconds},
                ) from None
            finally:
                seat.kill()
                # Only now: while the job runs, the processor is better left to it.
                self._do_later(self._replace(seat))

    async def _replace(self, seat: Seat) -> None:
        await asyncio.gather(self._refill(), asyncio.to_thread(seat.close, _PATIENCE))

    async def _refill(self) -> None:
        if len(self._spares) + self._awaited < self._workers:
            self._awaited += 1
            try:
                self._spares.append(await asyncio.to_thread(self._forkserver.fork))
            finally:
                self._awaited -= 1

    def _do_later(self, chore: Any) -> None:
        task = asyncio.ensure_future(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


@contextmanager
def _opened(sources: list[Path], output: Path) -> Iterator[list[int]]:
    """The sources to read and the output to write, as descriptors; after an error there is no output."""
    descriptors: list[int] = []
    try:
        for path in sources:
            descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        descriptors.append(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        yield descriptors
    except OSError as error:
        output.unlink(missing_ok=True)
        raise StepFailed("The files of the job cannot be opened.") from error
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


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


def _findings(answer: bytes) -> sandbox.Findings:
    try:
        return sandbox.Findings(**json.loads(answer)["findings"])
    except (ValueError, KeyError, TypeError):
        raise WorkerCrashed("The process that examines the sandbox gave no readable answer.") from None


def _outcome(answer: bytes) -> Done:
    try:
        values = json.loads(answer)
        if "error" in values:
            error = ConversionError.from_json(values["error"])
        else:
            done = values["done"]
            trace = tuple(Timing(str(t["step"]), float(t["seconds"])) for t in done["trace"])
            warned = tuple(Warned(str(w["code"]), str(w["message"])) for w in done["warnings"])
            counted = tuple(int(pages) for pages in done["input_pages"])
            pages = None if done["pages"] is None else int(done["pages"])
            effort = float(done["check_seconds"]), int(done["peak_memory"])
            return Done(int(done["size"]), trace, warned, counted, pages, *effort)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        error = WorkerCrashed("The conversion's process gave no readable answer.")
    raise error


def _death(exitcode: int | None) -> ConversionError:
    """What the end of a process without an answer means."""
    if exitcode == -signal.SIGXCPU:
        return TimedOut("The conversion took more processor time than it may have.")
    if exitcode == -signal.SIGKILL:
        return OutOfMemory("The conversion's process was killed.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
