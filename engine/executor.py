"""Runs jobs, each in a process of its own, forked ahead from a warm fork server and gone with its job."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import Any, Protocol

from engine import worker
from engine.errors import ConversionError, OutOfMemory, TimedOut, WorkerCrashed
from engine.pipeline import Timing, Warned
from engine.worker import Done, Input, Job, Limits

__all__ = ["Done", "Executor", "Input", "Job", "Limits", "LocalExecutor"]

_PATIENCE = 5.0  # seconds that a process may take to end after its answer
_MAX_ANSWER = 1 << 20  # bytes; more is no answer of ours


class Executor(Protocol):
    """Whatever runs jobs."""

    async def run(self, job: Job, limits: Limits = ...) -> Done:
        """Runs the job to its end. Raises ConversionError; cancelling kills the job."""


@dataclass(frozen=True)
class _Seat:
    """A process that waits for a job, and our end of the line to it."""

    process: ForkServerProcess
    line: socket.socket

    def kill(self) -> None:
        """Ends the process and whatever it started: it leads a session of its own once it has a job."""
        if self.process.is_alive() and self.process.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()

    def close(self) -> None:
        """Hangs up and waits for the process to end, as it does without a job or after its answer."""
        self.line.close()
        self.process.join(_PATIENCE)
        self.kill()
        self.process.join()
        self.process.close()


class LocalExecutor:
    """At most `workers` jobs at a time on this machine; more wait. `start` forks the first processes ahead."""

    def __init__(self, workers: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["engine.preload"])
        self._workers = workers
        self._slots = asyncio.Semaphore(workers)
        self._spares: deque[_Seat] = deque()
        self._forking = threading.Lock()
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts the fork server and a process for every worker."""
        for _ in range(self._workers):
            self._spares.append(await asyncio.to_thread(self._fork))

    async def close(self) -> None:
        """Waits for what is being tidied up, and ends the spare processes."""
        while self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        while self._spares:
            await asyncio.to_thread(self._spares.popleft().close)

    async def run(self, job: Job, limits: Limits = Limits()) -> Done:
        """Runs the job in a fresh process. Raises ConversionError; cancelling kills the process."""
        async with self._slots:
            seat = self._spares.popleft() if self._spares else await asyncio.to_thread(self._fork)
            try:
                return await self._seated(seat, job, limits)
            except BaseException:
                seat.kill()
                raise
            finally:
                # Only now: while the job runs, the processor is better left to it.
                self._do_later(self._replace(seat))

    async def _seated(self, seat: _Seat, job: Job, limits: Limits) -> Done:
        try:
            async with asyncio.timeout(limits.seconds):
                answer = await _exchange(seat.line, pickle.dumps((job, limits)))
        except TimeoutError:
            raise TimedOut(
                f"The conversion took longer than {limits.seconds:g} s.",
                details={"max_seconds": limits.seconds},
            ) from None
        if not answer:
            await asyncio.to_thread(seat.process.join)
            raise _death(seat.process.exitcode)
        return _outcome(answer)

    async def _replace(self, seat: _Seat) -> None:
        if len(self._spares) < self._workers:
            self._spares.append(await asyncio.to_thread(self._fork))
        await asyncio.to_thread(seat.close)

    def _do_later(self, chore: Any) -> None:
        task = asyncio.ensure_future(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _fork(self) -> _Seat:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = self._context.Process(target=worker.serve, args=(theirs,), daemon=True)
        with self._forking, _no_main_file(), theirs:
            process.start()
        return _Seat(process, ours)


@contextmanager
def _no_main_file() -> Iterator[None]:
    """Hides where this program was started from: every child would run that script again."""
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__file__",) if name in vars(main)}
    try:
        yield
    finally:
        vars(main).update(hidden)


async def _exchange(line: socket.socket, request: bytes) -> bytes:
    """Sends the request, then reads to the end of the answer, which is empty where the process died."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        await loop.sock_sendall(line, request)
        line.shutdown(socket.SHUT_WR)
        answer = bytearray()
        while len(answer) <= _MAX_ANSWER and (chunk := await loop.sock_recv(line, 65_536)):
            answer += chunk
        return bytes(answer)
    return b""


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
            return Done(int(done["size"]), trace, warned, counted, pages)
    except (ValueError, KeyError, TypeError, AttributeError):
        error = WorkerCrashed("The conversion's process gave no readable answer.")
    raise error


def _death(exitcode: int | None) -> ConversionError:
    """What the end of a process without an answer means."""
    if exitcode == -signal.SIGXCPU:
        return TimedOut("The conversion took more processor time than it may have.")
    if exitcode == -signal.SIGKILL:
        return OutOfMemory("The conversion's process was killed.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
