"""A process with workers of a cluster whose jobs only sleep: shows what a cluster can do apart from conversions.

Reads SleepingWorkers from standard input as JSON, and ends with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
from distributed import Worker
from prometheus_client import CollectorRegistry

from config.logs import quiet_libraries
from engine.executor import Executor, Job, JobLimits, JobResult
from storage.blobs.blob_store import FolderBlobStore
from web.cluster.jobs import Installation
from web.cluster.worker import JobRunner, WorkerOptions, run_worker
from web.metrics.cluster import ClusterWorkerMetrics
from web.services.work_files import WorkFiles

INSTALLATION = Installation("benchmark", "sleeping", "none")
"""The installation of the workers, and of servers that use them."""

MEMORY = 8 << 30
"""The memory of a worker in bytes, which nothing uses."""

_JOINING = 8  # workers at a time: more in one process would not be in time
# Each worker observes the process and the loop, as if there were no others: most of the CPU time would be for that.
_DASK_SETTINGS = {
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "1h",
    "distributed.worker.profile.enabled": False,
}


@dataclass(frozen=True)
class SleepingWorkers:
    """A number of workers that run `slots` jobs at a time each."""

    scheduler: str
    count: int
    slots: int


class SleepingExecutor:
    """Runs jobs that sleep for the seconds in their options. Results are empty."""

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        """Sleeps."""
        seconds = job.options["seconds"]
        assert isinstance(seconds, float)
        await asyncio.sleep(seconds)
        return JobResult(0, (), ())

    async def ready(self) -> bool:
        """Returns True."""
        return True


class SleepingRunner(JobRunner):
    """The jobs of a worker. `joined` is called when it is part of the cluster."""

    joined: Callable[[], None] = staticmethod(lambda: None)

    def setup(self, worker: Worker) -> None:
        """Calls `joined`."""
        super().setup(worker)
        self.joined()


async def sleep(executor: Executor, seconds: float) -> None:
    """Runs a job that sleeps, without input."""
    job = Job(("none",), "none", {"seconds": seconds}, memory=1)
    with os.fdopen(os.memfd_create("input")) as read, os.fdopen(os.memfd_create("result"), "wb") as write:
        await executor.run(job, "benchmark", [read.fileno()], write.fileno())


async def _run(workers: SleepingWorkers, folder: Path) -> None:
    blobs, work_files, metrics = FolderBlobStore(folder), WorkFiles(folder), ClusterWorkerMetrics(CollectorRegistry())
    stop, joining = asyncio.Event(), asyncio.Semaphore(_JOINING)
    async with asyncio.TaskGroup() as group:
        for _ in range(workers.count):
            await joining.acquire()
            runner = SleepingRunner(INSTALLATION, SleepingExecutor(), blobs, work_files, metrics)
            runner.joined = joining.release
            options = WorkerOptions(workers.scheduler, workers.slots, MEMORY, "127.0.0.1", folder=str(folder))
            group.create_task(run_worker(options, INSTALLATION, runner, stop))


def _main() -> None:
    quiet_libraries()
    workers = SleepingWorkers(**json.loads(sys.stdin.readline()))
    with TemporaryDirectory() as folder, dask.config.set(_DASK_SETTINGS):
        asyncio.run(_run(workers, Path(folder)))


if __name__ == "__main__":
    _main()
