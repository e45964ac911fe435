"""The executor that runs tasks on this machine, in worker processes that each belong to one account."""

import asyncio
import ctypes
import gc
import os
import signal
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from engine import memory_estimate, page_sharing, sandbox
from engine.errors import ConversionError, ExecutorUnavailable, StepFailed
from engine.executor import preload, tasks
from engine.executor.disk_quota import INTERVAL, BaseFolder, watch_quotas
from engine.executor.forkserver import ForkServer, task_environment
from engine.executor.network_server import serve
from engine.executor.pool import Worker, WorkerPool
from engine.executor.task_time import LONG, LONG_OF_PROGRAM, TaskTime
from engine.executor.tasks import Request, Task, TaskLimits, TaskResult
from engine.executor.templates import kill_group
from engine.executor.worker import run_worker
from engine.executor.worker_process import PID, WorkerProcess, open_files
from engine.network import Fetch, only_to
from engine.registry import load_registry

JOBS_PER_PROCESS = 1000
"""The default number of tasks of an account that a worker process runs."""

ATTEMPTS = 5
"""Worker processes that are tried until one starts a task."""

ALONE = 0.2
"""Seconds from the start of a task until others assist it, which a short task is not worth."""

_EXIT_TIMEOUT = 5.0  # seconds for a process that closed its connection to end
_ARENA_MAX = -8  # the parameter of mallopt that MALLOC_ARENA_MAX sets when a process starts


class Executor(Protocol):
    """Runs tasks."""

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = ...
    ) -> TaskResult:
        """Runs a task of an account to its end. Raises ConversionError. Cancelling kills the task.

        `inputs` are descriptors of readable files. The result is written to the file of the descriptor `output`. The
        caller closes all. The `seconds` of the result or of the error are the time of the task by TaskTime, without any
        wait for a process. If the task is cancelled, the cause of the CancelledError has them, if they are known.
        """

    async def ready(self) -> bool:
        """Returns whether tasks can run now."""


class SingleWorker:
    """The worker process of a command that converts one file: a child of the command itself, without a fork server.

    Forks one per task from this process, which must have one thread. The workers import `modules`, then apply the
    sandbox `layers`.
    """

    def __init__(self, layers: Collection[str], modules: Collection[str]) -> None:
        self._layers = layers
        self._modules = modules

    async def start(self) -> None:
        """Does nothing: a process is forked for each task."""

    async def close(self) -> None:
        """Does nothing: a process ends with its task."""

    async def ready(self) -> bool:
        """Returns True."""
        return True

    @asynccontextmanager
    async def worker(self, account: str, *, own_process: bool, template: str = "") -> AsyncIterator[Worker]:
        """A worker for one task of the account, which is killed on exit. Raises ExecutorUnavailable."""
        base_folder = BaseFolder()
        try:
            process, status = self._fork(f"{base_folder.path}/1")
            loop = asyncio.get_running_loop()
            loop.add_reader(process.pidfd, _reap, process, status)
            try:
                yield Worker(process, account, (0, 0), final=True)
            finally:
                loop.remove_reader(process.pidfd)
                process.kill()
                _reap(process, status)
                process.discard()
        finally:
            base_folder.remove()

    def _fork(self, folder: str) -> tuple[WorkerProcess, socket.socket]:
        """Returns a worker process with a new folder, and the socket that takes its exit code."""
        Path(folder).mkdir(0o700)
        connection, remote_connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        prepare = partial(self._prepare, os.getpid(), folder)
        try:
            pid = os.fork()
        except OSError as error:
            raise ExecutorUnavailable("No process can be started for the conversion.") from error
        if pid == 0:
            run_worker(remote_connection.fileno(), folder, prepare, preload.programs_of(self._modules))
        remote_connection.close()
        connection.setblocking(False)
        status.setblocking(False)
        files = open_files(pid)
        process = WorkerProcess(pid, Path(folder), connection, status, files, os.pidfd_open(pid))
        return process, remote_status

    def _prepare(self, parent: int, folder: str) -> tuple[Mapping[str, bool], int]:
        """Imports the modules and applies the sandbox, in the worker process."""
        for number in (signal.SIGINT, signal.SIGTERM):  # the command handles these
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # objects that the garbage collector visits in a fork are copied
        environment = {**task_environment(), "TMPDIR": folder}
        os.environ.clear()
        os.environ.update(environment)
        ctypes.CDLL(None).mallopt(_ARENA_MAX, int(environment["MALLOC_ARENA_MAX"]))
        namespace = sandbox.enter_network_namespace(self._layers)
        preload.import_modules(self._modules)
        address_space = sandbox.address_space()
        path_rules = sandbox.allowed_path_rules(load_registry().programs)
        several = bool(preload.programs_of(self._modules))
        layers = sandbox.apply_layers(self._layers, parent, path_rules, folder, several_processes=several)
        return namespace | layers, address_space


def _reap(process: WorkerProcess, status: socket.socket) -> None:
    """Ends the group of a process that has ended, and sends its exit code. Does nothing the second time."""
    if status.fileno() < 0:
        return
    kill_group(process.pid)
    exitcode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    with status:
        status.send(PID.pack(exitcode))


class LocalExecutor:
    """Runs at most `workers` tasks at a time; others wait. Worker processes have the sandbox `layers`.

    A worker process belongs to the account of its first task and runs up to `jobs_per_process` tasks of that account.
    The tasks of one account can share the memory of a process; tasks of two accounts never do. `pool` replaces the
    worker processes that the other parameters describe.

    Tasks that make requests do so by `fetch`; without it, they make none.

    While fewer tasks run than there are `cores`, other processes assist one that draws pages. They end when a task
    comes, which then has the cores and the memory; the process that leads goes on alone.
    """

    def __init__(
        self,
        workers: int,
        layers: Collection[str] = sandbox.LAYERS,
        jobs_per_process: int = JOBS_PER_PROCESS,
        *,
        pool: WorkerPool | SingleWorker | None = None,
        cores: int = 1,
        fetch: Fetch | None = None,
    ) -> None:
        self.pool = pool or WorkerPool(ForkServer(layers), workers, jobs_per_process)
        self._slots = asyncio.Semaphore(workers)
        self._cores = cores
        self._fetch = fetch
        self._tasks = 0  # The number of tasks that run or wait.
        self._assistants = set[asyncio.Task[None]]()

    async def start(self) -> None:
        """Starts the fork server and spare processes, which otherwise happens at the first task.

        Raises ExecutorUnavailable.
        """
        await self.pool.start()

    def prepare(self, templates: Iterable[str]) -> None:
        """Begins to start templates while no task runs, which otherwise happens at the first task of each."""
        if isinstance(self.pool, WorkerPool):
            self.pool.prepare(templates)

    async def close(self) -> None:
        """Ends all processes."""
        await self.pool.close()

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        """Runs a task of an account. Raises ConversionError. Cancelling kills the process."""
        time = TaskTime(limits, LONG_OF_PROGRAM if task.runs_programs else LONG)
        for one in self._assistants:
            one.cancel()
        self._tasks += 1
        try:
            async with (
                self._slots,
                time.limited(),
                self._assisted(task, account, inputs, limits, time) as shared,
            ):
                with reopen(inputs) as sources:
                    result = await self._run(task, account, [*sources, output], shared, limits, time)
            return replace(result, seconds=time.of_process)
        except ConversionError as error:
            error.seconds = time.of_process
            raise
        except asyncio.CancelledError as error:
            cause = StepFailed("The conversion was cancelled.")
            cause.seconds = time.of_process
            raise error from cause
        finally:
            self._tasks -= 1

    async def _run(
        self, task: Task, account: str, descriptors: list[int], shared: list[int], limits: TaskLimits, time: TaskTime
    ) -> TaskResult:
        output = descriptors[-1]
        for _ in range(ATTEMPTS):
            if os.lseek(output, 0, os.SEEK_END):
                os.ftruncate(output, 0)
                os.lseek(output, 0, os.SEEK_SET)
            with suppress(NotStarted):
                async with self.pool.worker(account, own_process=task.own_process, template=task.template) as worker:
                    worker.keeps_program = task.runs_programs
                    children = task.own_process or task.runs_programs
                    with self._network(task) as connections, time.running(worker.process, children=children):
                        request = Request(account, limits, worker.final, task, has_network=bool(connections))
                        reply = await send_request(worker, request, [*descriptors, *shared], connections)
                    result, reusable = tasks.parse_result(reply)
                    written = os.fstat(output).st_size
                    if result.outcome.processed_size != written or written > limits.output:
                        raise StepFailed("The conversion's process reported a size that differs from its file.")
                    worker.succeeded = reusable and not time.is_long
                    return result
        raise ExecutorUnavailable("No process can be started for the conversion.")

    @contextmanager
    def _network(self, task: Task) -> Iterator[list[int]]:
        """The descriptor by which a task makes requests, which are answered during the block; none if it makes none."""
        if self._fetch is None or not (task.page or task.urls):
            yield []
            return
        fetch = self._fetch if task.page else only_to(task.urls, self._fetch)
        own, remote = socket.socketpair()
        own.setblocking(False)
        serving = asyncio.create_task(serve(own, fetch))
        try:
            with remote:
                yield [remote.fileno()]
        finally:
            serving.cancel()

    @asynccontextmanager
    async def _assisted(
        self, task: Task, account: str, inputs: Sequence[int], limits: TaskLimits, time: TaskTime
    ) -> AsyncIterator[list[int]]:
        """Runs assistants for the pages of a task that no other one runs beside; they have ended after the block.

        Yields the descriptors with which the process that leads shares the pages; none if it has no assistants.
        """
        count = min(self._cores - self._tasks, memory_estimate.MAX_BYTES // max(task.memory, 1) - 1)
        if count < 1 or not task.draws_pages or task.dry_run or task.outputs:
            yield []
            return
        with tempfile.TemporaryFile() as results, os.fdopen(os.memfd_create("pages"), "r+b") as table:
            table.truncate(page_sharing.TABLE_BYTES)
            shared = [table.fileno(), results.fileno()]
            coroutines = [self._assist(task, account, inputs, shared, limits, time) for _ in range(count)]
            assistants = set(map(asyncio.create_task, coroutines))
            self._assistants |= assistants
            try:
                yield shared
            finally:
                for one in assistants:
                    one.cancel()
                await asyncio.wait(assistants)
                self._assistants -= assistants

    async def _assist(
        self, task: Task, account: str, inputs: Sequence[int], shared: list[int], limits: TaskLimits, time: TaskTime
    ) -> None:
        """Converts pages in another process of the account, with the limits of the task."""
        await asyncio.sleep(ALONE)
        with suppress(ConversionError, NotStarted), ExitStack() as stack:
            files = [*stack.enter_context(reopen(inputs)), shared[0]]
            files += stack.enter_context(reopen(shared[1:], os.O_WRONLY | os.O_APPEND))
            async with self.pool.worker(account, own_process=task.own_process, template=task.template) as worker:
                with time.running(worker.process, children=task.own_process):
                    worker.process.lower_priority()  # for good: no other task gets this process
                    await send_request(worker, Request(account, limits, worker.final, task, assists=True), files)

    async def examine(self) -> sandbox.SandboxReport:
        """Runs the sandbox self-test in a process of its own. Raises ConversionError."""
        limits = TaskLimits()
        async with self._slots, TaskTime(limits).limited(), self.pool.worker("", own_process=True) as worker:
            return tasks.parse_report(await send_request(worker, Request("", limits, final=True), []))

    async def ready(self) -> bool:
        """Returns whether a process waits for a task, or one can be started."""
        return await self.pool.ready()


class NotStarted(Exception):
    """The worker process ended before it read a file of the task, so that another can run the task."""


async def send_request(
    worker: Worker, request: Request, descriptors: list[int], connections: Sequence[int] = ()
) -> bytes:
    """Returns the worker's reply. Raises ConversionError if it ends without one, and NotStarted.

    The worker gets the descriptors of files, and after them those of `connections`.
    """
    process = worker.process
    loop = asyncio.get_running_loop()
    watch = partial(watch_quotas, process, request.limits, worker.initial[0])
    quotas = list[asyncio.Task[ConversionError]]()
    timer = loop.call_later(INTERVAL, lambda: quotas.append(loop.create_task(watch())))
    reply = b""
    try:
        with suppress(ConnectionError):
            socket.send_fds(process.connection, [request.encode()], [*descriptors, *connections])
            # One byte more than a reply can have: a longer message is unreadable.
            reply = await loop.sock_recv(process.connection, tasks.MAX_MESSAGE + 1)
        if not reply:
            # The process reads through the same open files, so their offsets are shared.
            if not any(os.lseek(descriptor, 0, os.SEEK_CUR) for descriptor in descriptors):
                raise NotStarted
            exitcode = await process.exitcode(_EXIT_TIMEOUT)
            raise next((one.result() for one in quotas if one.done()), tasks.exit_error(exitcode))
        return reply
    finally:
        timer.cancel()
        for one in quotas:
            one.cancel()


@contextmanager
def reopen(files: Sequence[int], flags: int = os.O_RDONLY) -> Iterator[list[int]]:
    """Opens the files again, by default so that a task can neither write to them nor depend on their position."""
    opened: list[int] = []
    try:
        for descriptor in files:
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # opening a named pipe would block
                    raise StepFailed("The files of the task must be regular files.")
                opened.append(os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC))
            except OSError as error:
                raise StepFailed("The files of the task cannot be opened.") from error
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)
