"""The formats of files in a server: compared here as far as formats declare bytes, or else read by a worker process.

The process belongs to no account, and reads one file after the other. It is killed if a file takes it long, so that
no file keeps the server, or other files, waiting.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from engine.detection import HEAD, unrecognized
from engine.errors import ConversionError, ExecutorUnavailable, TimedOut
from engine.executor import tasks
from engine.executor.local import ATTEMPTS, NotStarted, SingleWorker, reopen, send_request
from engine.executor.pool import WorkerPool
from engine.executor.tasks import Identification, Request, TaskLimits
from engine.executor.worker_process import WorkerProcess
from engine.formats import FileFormat
from engine.registry import Registry

CPU_SECONDS = 0.1
"""CPU time in which the format of a file has to be found."""

SECONDS = 2.0
"""Time for a file, in which its process may also wait for the CPU."""

_STEP = 0.01  # seconds between two looks at the CPU time
_PROCESSES = 2  # at a time
_NO_ACCOUNT = ""
_LIMITS = TaskLimits(SECONDS, memory=256 << 20, output=1 << 16)


class Detector:
    """Identifies files with the formats of a registry, by processes of a pool.

    The registry records failures of detection. `close` ends the processes if they belong to it.
    """

    def __init__(self, registry: Registry, pool: WorkerPool | SingleWorker, *, owns_pool: bool = False) -> None:
        self.registry = registry
        self._pool = pool
        self._owns_pool = owns_pool
        self._turns = asyncio.Semaphore(_PROCESSES)

    async def close(self) -> None:
        """Ends the processes."""
        if self._owns_pool:
            await self._pool.close()

    def compare(self, file: int, filename: str) -> FileFormat | None:
        """Returns the format of an open file, or None if a process has to find it. Blocks if the file is on a disk.

        Raises UnknownFormat, as `Detection.compare` does.
        """
        return self.registry.detection.compare(os.pread(file, HEAD, 0), filename, self.registry.switched_off)

    async def read(self, file: int, filename: str) -> FileFormat:
        """Returns the format of an open file that a process finds.

        Raises UnknownFormat, also if that takes more than 100 ms of CPU time, and ExecutorUnavailable.
        """
        task = Identification(filename, tuple(self.registry.switched_off))
        async with self._turns:
            for _ in range(ATTEMPTS):
                with suppress(NotStarted):
                    return await self._read(file, task)
        raise ExecutorUnavailable("No process can be started to find the format of the file.")

    async def _read(self, file: int, task: Identification) -> FileFormat:
        progress = os.memfd_create("convertd-detection", os.MFD_CLOEXEC)
        try:
            with reopen([file]) as sources:
                async with self._pool.worker(_NO_ACCOUNT, own_process=False) as worker, _limited(worker.process):
                    request = Request(_NO_ACCOUNT, _LIMITS, worker.final, task)
                    reply = await send_request(worker, request, [*sources, progress])
                    found, worker.succeeded = tasks.parse_identified(reply)
        except ConversionError as error:
            self._record_last(progress, str(error))
            if isinstance(error, ExecutorUnavailable):
                raise
            raise unrecognized() from error
        finally:
            os.close(progress)
        for name in found.errors.keys() & self.registry.formats.keys():
            self.registry.record_failure(name, found.errors[name])
        if found.format not in self.registry.formats:
            raise unrecognized()
        return self.registry.formats[found.format]

    def _record_last(self, progress: int, error: str) -> None:
        """Records a failure of the sniffer that a process has called last."""
        called = os.pread(progress, _LIMITS.output, 0).decode("utf-8", "replace").split()
        if called and called[-1] in self.registry.formats:
            self.registry.record_failure(called[-1], error)


@asynccontextmanager
async def _limited(process: WorkerProcess) -> AsyncIterator[None]:
    """Cancels the block if the process takes too long. Raises TimedOut for CPU time, ExecutorUnavailable else."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + SECONDS
    most = _cpu_seconds(process) + CPU_SECONDS

    def look() -> None:
        left = min(most - _cpu_seconds(process), ends - loop.time())
        if left > 0:
            timers.append(loop.call_later(max(left, _STEP), look))
        else:
            deadline.reschedule(loop.time())

    timers = [loop.call_later(CPU_SECONDS, look)]
    try:
        async with asyncio.timeout(None) as deadline:
            yield
    except TimeoutError:
        if loop.time() < ends:
            raise TimedOut(f"The detection takes more than {CPU_SECONDS} s of CPU time.") from None
        raise ExecutorUnavailable("The format of the file was not found in time.") from None
    finally:
        timers[-1].cancel()


def _cpu_seconds(process: WorkerProcess) -> float:
    """The CPU time of a process; 0 if it has ended."""
    with suppress(OSError):
        return process.cpu_seconds(children=False)
    return 0.0
