"""The processes of a cluster: a Dask scheduler, workers that convert or sleep, and their share of the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from time import sleep

from distributed import Client
from pydantic import SecretStr

from benchmarks.measure import cpu_seconds
from benchmarks.server_process import started
from benchmarks.sleeping_workers import SleepingWorkers
from config.settings import Settings
from storage.blobs.blob_store import FolderBlobStore
from web.cluster.executor import ClusterExecutor
from web.cluster.jobs import Installation

MEMORY = 4 << 30
"""The memory of a worker in bytes."""

_SCHEDULER = (
    *(str(Path(sys.executable).with_name("dask")), "scheduler"),
    *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
)
_SCHEDULER_SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "5s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s",
}
_WORKER = (str(Path(sys.executable).with_name("convertd")), "worker")
_SLEEPING_WORKERS = (sys.executable, "-m", "benchmarks.sleeping_workers")
_CPU_PERIOD = 100_000  # microseconds
_CGROUP_ENDS = 50  # attempts to remove a control group, 0.1 s apart
_JOIN_TIMEOUT = 120.0  # seconds


@dataclass(frozen=True)
class Cluster:
    """A running cluster: the address of its scheduler, and the processes of the scheduler and of the workers."""

    address: str
    scheduler: int
    workers: tuple[int, ...]
    blobs: Path

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all processes."""
        return sum(cpu_seconds(pid) for pid in (self.scheduler, *self.workers))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a server that uses the cluster."""
        return {"CONVERTD_CLUSTER": self.address, "CONVERTD_BLOB_URL": self.blobs.as_uri()}


@contextmanager
def converting(folder: Path, workers: int, slots: int, share: float | None = None) -> Iterator[Cluster]:
    """Runs a cluster of `convertd worker` processes with folders of their own below `folder`.

    Each worker has at most `share` of one core. Raises OSError if that cannot be limited.
    """
    with ExitStack() as stack:
        blobs = Path(mkdtemp(dir=folder))
        scheduler, address = stack.enter_context(_scheduler())
        command = (*_WORKER, "--scheduler", address, "--jobs", str(slots), "--memory", str(MEMORY))
        pids = []
        for _ in range(workers):
            settings = {
                "CONVERTD_DATA_DIR": mkdtemp(dir=folder),
                "CONVERTD_METRICS_PORT": "0",
                "CONVERTD_BLOB_URL": blobs.as_uri(),
            }
            limit = stack.enter_context(_processor_limit(share)) if share else lambda _pid: None
            process, _ = stack.enter_context(started(command, settings, rb"(joined the cluster)", limit))
            pids.append(process.pid)
        yield Cluster(address, scheduler.pid, tuple(pids), blobs)


@contextmanager
def sleeping(folder: Path, workers: int, slots: int, processes: int) -> Iterator[Cluster]:
    """Runs a cluster whose jobs only sleep, with the workers distributed over a number of processes."""
    with ExitStack() as stack:
        scheduler, address = stack.enter_context(_scheduler())
        pids = []
        for number in range(processes):
            count = workers // processes + (number < workers % processes)
            process = stack.enter_context(subprocess.Popen(_SLEEPING_WORKERS, stdin=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdin is not None
            options = SleepingWorkers(address, count, slots)
            process.stdin.write(json.dumps(asdict(options)).encode() + b"\n")
            process.stdin.flush()
            pids.append(process.pid)
        yield Cluster(address, scheduler.pid, tuple(pids), Path(mkdtemp(dir=folder)))


async def wait_for_workers(cluster: Cluster, count: int) -> None:
    """Returns when so many workers have joined. Raises TimeoutError."""
    async with Client(cluster.address, asynchronous=True, set_as_default=False) as client:
        await client.wait_for_workers(count, timeout=_JOIN_TIMEOUT)


@asynccontextmanager
async def connected(cluster: Cluster, installation: Installation) -> AsyncIterator[ClusterExecutor]:
    """The executor of a server of the cluster."""
    executor = ClusterExecutor(cluster.address, installation, FolderBlobStore(cluster.blobs, durable=False))
    await executor.start(lambda _slots, _memory: None)
    try:
        yield executor
    finally:
        await executor.close()


def settings_of(cluster: Cluster, folder: Path) -> Settings:
    """Returns the settings of a server that uses the cluster, with that data folder."""
    return Settings(data_dir=folder, cluster=cluster.address, blob_url=SecretStr(cluster.blobs.as_uri()))


def _scheduler() -> AbstractContextManager[tuple[subprocess.Popen[bytes], str]]:
    return started(_SCHEDULER, _SCHEDULER_SETTINGS, rb"Scheduler at: *(tcp://\S+)")


@contextmanager
def _processor_limit(share: float) -> Iterator[Callable[[int], None]]:
    """A control group whose processes have at most `share` of one core. Yields a function that moves a process there.

    Raises OSError if this process cannot create one.
    """
    group = _cgroup_folder() / f"convertd-benchmark-{os.getpid()}-{os.urandom(4).hex()}"
    group.mkdir()
    try:
        quota = int(share * _CPU_PERIOD)
        if (maximum := group / "cpu.max").exists():
            maximum.write_text(f"{quota} {_CPU_PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield partial(_move, group)
    finally:
        _remove(group)


def _move(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def _cgroup_folder() -> Path:
    root = Path("/sys/fs/cgroup")
    return root if (root / "cgroup.controllers").exists() else root / "cpu"


def _remove(group: Path) -> None:
    for _ in range(_CGROUP_ENDS):  # until the processes of killed workers have ended
        with suppress(OSError):
            group.rmdir()
            return
        sleep(0.1)
