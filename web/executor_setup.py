"""Creates the executor with the sandbox that the settings require."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from config.settings import Settings
from engine import sandbox
from engine.errors import ConversionError
from engine.executor import LocalExecutor
from engine.executor.forkserver import ForkServer
from engine.executor.pool import WorkerPool
from engine.executor.single import SingleWorker


class SandboxIncomplete(RuntimeError):
    """The sandbox is required but incomplete on this system; `str(error)` lists the missing layers and checks."""


def local_executor(settings: Settings, workers: int, folder: Path | None = None) -> LocalExecutor:
    """Returns an executor with the sandbox layers and jobs per process of the settings. The caller closes it.

    The folders of worker processes are below `folder`, by default the system's temporary folder.
    """
    layers = sandbox.ALWAYS if settings.sandbox == "off" else sandbox.LAYERS
    forkserver = ForkServer(layers, folder=folder)
    return LocalExecutor(workers, pool=WorkerPool(forkserver, workers, settings.jobs_per_process))


def command_executor(settings: Settings, jobs: int, modules: Collection[str]) -> LocalExecutor:
    """Returns an executor for a number of jobs that import only `modules`. The caller closes it."""
    layers = sandbox.ALWAYS if settings.sandbox == "off" else sandbox.LAYERS
    if jobs == 1:
        return LocalExecutor(1, pool=SingleWorker(layers, modules))
    workers = min(settings.workers, jobs)
    return LocalExecutor(workers, pool=WorkerPool(ForkServer(layers, modules), workers, settings.jobs_per_process))


async def check_sandbox(settings: Settings, executor: LocalExecutor) -> sandbox.SandboxReport:
    """Returns the sandbox report of the executor. Raises SandboxIncomplete if the settings require more."""
    try:
        report = await executor.examine()
    except ConversionError as error:
        raise SandboxIncomplete(f"the sandbox check failed: {error}") from error
    if settings.sandbox == "required" and not report.complete:
        missing = ", ".join(report.missing)
        raise SandboxIncomplete(f"the sandbox is required but incomplete; missing: {missing}; see 'convertd doctor'")
    return report
