"""Clusters for tests: a scheduler, and workers whose jobs follow a script, in this process or in others."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
from dask.typing import Key
from distributed import Scheduler, SchedulerPlugin, Status
from prometheus_client import CollectorRegistry

from benchmarks.processes import SchedulerProcess
from engine.errors import CorruptInput
from engine.executor import Task, TaskLimits, TaskResult
from engine.outcome import Outcome
from storage.blobs.blob_store import FolderBlobStore
from storage.blobs.url_transfers import UrlTransfers
from tests.support.servers.forks import FORKS
from web.metrics.service import ClusterWorkerMetrics
from web.services.files.work_files import WorkFiles
from web.workers.cluster_executor import ClusterExecutor
from web.workers.cluster_jobs import Installation, JobRunner
from web.workers.cluster_worker import WorkerOptions, run_worker

INSTALLATION = Installation("1.0.0", "catalogue")
MEMORY = 1 << 30
"""Bytes of a worker."""

SECONDS = 6.5
"""How long a process has run each job, as the executors of workers report."""

_STARTED, _RELEASED = "started", "released"  # files of a cluster: a byte for each started job, whether jobs may end

dask.config.set({f"distributed.scheduler.{name}": value for name, value in SchedulerProcess.SETTINGS.items()})


class ScriptedExecutor:
    """Copies the first input of a job to its output, after the deed in the name of the job.

    `sleep S` waits for S seconds, `wait` until Cluster.release is called, `fail` raises CorruptInput, `crash` an
    unexpected error, `die` ends this process. Reports SECONDS for each job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running = 0
        self.most_running = 0
        self.cancelled = 0
        self.jobs: Counter[str] = Counter()  # by account

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        self.jobs[account] += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        with (self._folder / _STARTED).open("ab") as started:
            started.write(b".")
        try:
            deed, _, value = task.name.partition(" ")
            if deed == "sleep":
                await asyncio.sleep(float(value))
            elif deed == "wait":
                await until((self._folder / _RELEASED).exists)
            elif deed == "fail":
                error = CorruptInput("The file is damaged.", details={"step": "png"})
                error.seconds = SECONDS
                raise error
            elif deed == "crash":
                raise RuntimeError("unexpected")
            elif deed == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            return TaskResult(Outcome(task.target, os.sendfile(output, inputs[0], 0, 1 << 30)), seconds=SECONDS)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def ready(self) -> bool:
        return True


class WorkerProcess:
    """A worker in a process."""

    def __init__(self, scheduler: str, folder: Path, jobs: int) -> None:
        self._process = FORKS.Process(target=_run_in_process, args=(scheduler, folder, jobs))
        self._process.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGTERM, which ends the worker after its jobs."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    async def wait(self) -> int | None:
        """Waits until the process has ended. Returns its exit code."""
        await asyncio.to_thread(self._process.join)
        return self._process.exitcode

    async def kill_and_wait(self) -> None:
        """Kills the process, unless it has ended."""
        self._process.kill()
        await self.wait()


class _ReleasingPlugin(SchedulerPlugin):
    name = "releasing"

    def __init__(self, scheduler: Scheduler, client: str) -> None:
        self._scheduler = scheduler
        self._client = client
        self.released: list[Key] = []

    def transition(self, key: Key, start: str, finish: str, *_args: Any, **_details: Any) -> None:
        if finish == "processing":
            asyncio.get_running_loop().call_soon(self._release, key)

    def _release(self, key: Key) -> None:
        self._scheduler.client_releases_keys([key], self._client)
        self.released.append(key)


class Cluster:
    """A cluster at the address `scheduler` with a blob store in `folder`."""

    def __init__(self, scheduler: str, folder: Path, own: Scheduler | None = None) -> None:
        self.scheduler = scheduler
        self._own_scheduler = own  # if it is in this process
        self._folder = folder
        self.blobs = FolderBlobStore(folder / "blobs")
        self._stack = AsyncExitStack()

    def stored(self) -> list[str]:
        """The keys in the blob store."""
        return [path.name for path in (self._folder / "blobs").iterdir()]

    def joined(self) -> int:
        """The number of workers that take jobs; 0 if the scheduler is another process."""
        workers = self._own_scheduler.workers.values() if self._own_scheduler else ()
        return sum(worker.status is Status.running for worker in workers)

    def submitted(self) -> int:
        """The number of jobs that the scheduler has received. It must be in this process."""
        assert self._own_scheduler
        log = self._own_scheduler.transition_log
        return sum(transition.start == "released" and transition.finish == "waiting" for transition in log)

    @contextmanager
    def releasing_sent_jobs(self, client: str) -> Iterator[list[Key]]:
        """Releases the jobs of a client in the messages that send them to workers. Yields the keys of these jobs.

        The scheduler must be in this process.
        """
        assert self._own_scheduler
        plugin = _ReleasingPlugin(self._own_scheduler, client)
        self._own_scheduler.add_plugin(plugin)
        yield plugin.released
        self._own_scheduler.remove_plugin(plugin.name)

    def started(self) -> int:
        """The number of jobs that workers have started."""
        path = self._folder / _STARTED
        return path.stat().st_size if path.exists() else 0

    def release(self) -> None:
        """Lets the jobs that wait end."""
        (self._folder / _RELEASED).touch()

    async def executor(
        self,
        workers: int,
        installation: Installation = INSTALLATION,
        on_resize: Callable[[int, int, int], None] = lambda *_limits: None,
    ) -> ClusterExecutor:
        """The executor of a server, as soon as it knows this number of workers. Closed with the cluster."""
        executor = ClusterExecutor(self.scheduler, installation, self.blobs)
        self._stack.push_async_callback(executor.close)
        await executor.start(on_resize)
        await until(lambda: len(executor.connection.workers) >= workers)
        return executor

    async def worker(
        self, jobs: int = 2, memory: int = MEMORY, installation: Installation = INSTALLATION
    ) -> ScriptedExecutor:
        """Starts a worker in this process that ends with the cluster. Returns its executor."""
        executor, stop, joined = ScriptedExecutor(self._folder), asyncio.Event(), self.joined()
        task = asyncio.create_task(self.run_worker(executor, stop, jobs, memory, installation))
        self._stack.push_async_callback(_stopped, task, stop)
        if self._own_scheduler:
            await until(lambda: self.joined() > joined)
        return executor

    async def run_worker(
        self,
        executor: ScriptedExecutor,
        stop: asyncio.Event,
        jobs: int = 2,
        memory: int = MEMORY,
        installation: Installation = INSTALLATION,
    ) -> None:
        """Runs a worker in this process until `stop` is set."""
        work_files = WorkFiles(self._folder / f"jobs-{id(executor)}")
        work_files.prepare()
        transfers = UrlTransfers()
        runner = JobRunner(installation, executor, transfers, work_files, ClusterWorkerMetrics(CollectorRegistry()))
        options = WorkerOptions(self.scheduler, jobs, memory, "127.0.0.1", folder=str(self._folder))
        await run_worker(options, runner, stop)
        await transfers.close()

    async def process(self, jobs: int = 2) -> WorkerProcess:
        """Starts a worker process, which is killed with the cluster."""
        process = WorkerProcess(self.scheduler, self._folder, jobs)
        self._stack.push_async_callback(process.kill_and_wait)
        return process

    async def close(self) -> None:
        """Ends executors and workers."""
        await self._stack.aclose()


async def _stopped(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    await task


@asynccontextmanager
async def cluster_at(scheduler: str, folder: Path) -> AsyncIterator[Cluster]:
    """A cluster without workers, whose scheduler may not run."""
    cluster = Cluster(scheduler, folder)
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def running_cluster(folder: Path, worker_ttl: float = 30) -> AsyncIterator[Cluster]:
    """A cluster without workers, whose scheduler is in this process."""
    async with Scheduler(
        host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0", worker_ttl=worker_ttl
    ) as scheduler:
        cluster = Cluster(scheduler.address, folder, scheduler)
        try:
            yield cluster
        finally:
            await cluster.close()


async def run_scripted(
    executor: ClusterExecutor,
    deed: str = "copy",
    content: bytes = b"picture",
    account: str = "account",
    memory: int = 0,
) -> bytes:
    """Runs a job with this deed, in which a password is a secret. Returns its output."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        work_files = WorkFiles(Path(folder))
        source, target = (stack.enter_context(work_files.create(account)) for _ in range(2))
        await source.write(content)
        await source.flush()
        job = Task(("png",), "webp", {"password": "secret"}, name=deed, memory=memory)
        result = await executor.run_on_files(job, account, [source], target)
        await target.load(executor.blobs)
        await target.flush()
        assert (result.outcome.processed_size, result.seconds) == (target.size, SECONDS)
        return target.read()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits until the condition is met. Raises TimeoutError."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.02)


def _run_in_process(scheduler: str, folder: Path, jobs: int) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await Cluster(scheduler, folder).run_worker(ScriptedExecutor(folder), stop, jobs)

    asyncio.run(run())
