"""Executors whose processes load the misbehaving plugin, and jobs on files."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine import sandbox
from engine.executor import Executor, LocalExecutor, Task, TaskLimits, TaskResult
from engine.executor.forkserver import ForkServer
from engine.executor.pool import WorkerPool
from engine.registry import load_registry

MISBEHAVING = Path(__file__).parent / "misbehaving"
"""The folder of the misbehaving plugin."""

ACCOUNT = "account"

ALL_MODULES = ()
PNG_MODULES = load_registry().plan([load_registry().formats["png"]], "png").modules
"""Modules that a fork server imports: those of all jobs, or in a third of the time those of jobs that write PNG."""


class ObservedExecutor(LocalExecutor):
    """An executor with its worker pool and its fork server, which imports only these modules."""

    def __init__(
        self,
        workers: int,
        layers: Collection[str] = sandbox.LAYERS,
        jobs_per_process: int = 100,
        modules: Collection[str] = PNG_MODULES,
        folder: Path | None = None,
    ) -> None:
        self.forkserver = ForkServer(layers, modules, folder)
        self.pool: WorkerPool = WorkerPool(self.forkserver, workers, jobs_per_process)
        super().__init__(workers, pool=self.pool)


@asynccontextmanager
async def misbehaving(
    workers: int,
    layers: Collection[str] = sandbox.LAYERS,
    jobs_per_process: int = 100,
    modules: Collection[str] = PNG_MODULES,
) -> AsyncIterator[ObservedExecutor]:
    """An executor whose fork server has started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MISBEHAVING)
        executor = ObservedExecutor(workers, layers, jobs_per_process, modules)
        await executor.start()
        try:
            yield executor
        finally:
            await executor.close()


class FileJob(NamedTuple):
    """A job with the paths of its files."""

    job: Task
    inputs: Sequence[Path]
    output: Path


async def run_files(
    executor: Executor, file_job: FileJob, limits: TaskLimits = TaskLimits(), account: str = ACCOUNT
) -> TaskResult:
    """Runs a job. Leaves no output file if it fails."""
    job, inputs, output = file_job
    with ExitStack() as stack:
        sources = [stack.enter_context(path.open("rb")).fileno() for path in inputs]
        target = stack.enter_context(output.open("wb")).fileno()
        try:
            return await executor.run(job, account, sources, target, limits)
        except BaseException:
            output.unlink(missing_ok=True)
            raise


def trouble_job(
    folder: Path, deed: str, target: str = "png", *, isolated: bool = False, programs: bool = False
) -> FileJob:
    """A job of the misbehaving plugin, which may start processes if it may start `programs`."""
    source = folder / f"{deed}.trouble"
    source.write_bytes((b"LAUNCH " if programs else b"TROUBLE ") + deed.encode())
    name = "launcher" if programs else "trouble"
    return FileJob(Task((name,), target, own_process=isolated or programs), [source], folder / f"{deed}.out")


def idle_workers(executor: ObservedExecutor, account: str = ACCOUNT) -> list[int]:
    """The process IDs of an account's idle workers."""
    return [worker.process.pid for worker in executor.pool.idle if worker.account == account]


async def run_deed(executor: ObservedExecutor, folder: Path, deed: str = "behave", account: str = ACCOUNT) -> list[int]:
    """Runs a job. Returns the account's idle workers afterwards."""
    await run_files(executor, trouble_job(folder, deed), account=account)
    return idle_workers(executor, account)


async def has_ended(pid: int) -> bool:
    """Waits up to 5 seconds for a process to end. Returns whether it has."""
    process = Path(f"/proc/{pid}")
    for _ in range(100):
        if not await asyncio.to_thread(process.exists):
            return True
        await asyncio.sleep(0.05)
    return False
