"""The worker processes of an executor: spares for any account, and idle workers that belong to an account.

A spare is bound to the account of its first task, and takes further tasks of that account only, until it is retired.
Idle workers are stopped, so that a file which has taken over its process can do nothing between tasks. A worker whose
next task follows at once is neither stopped nor examined: that would take a tenth of the time of a small task.
"""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic

from engine.errors import ConversionError, ExecutorUnavailable
from engine.executor.forkserver import ForkServer
from engine.executor.worker_process import WorkerProcess

log = logging.getLogger("convertd.executor")

IDLE_SECONDS = 60.0
IDLE_WORKERS = 64
"""Number of idle workers of the usual size that there is always memory for."""

PAUSE = 0.05  # seconds after its latest task until a worker is examined and stopped
UNEXAMINED_JOBS = 10  # tasks in a row without a pause after which a worker is examined, too
MAX_AGE = 600.0  # seconds since the first task
MAX_GROWTH = 64 << 20  # bytes of resident memory since the first task
MAX_GROWTH_OF_PROGRAM = 512 << 20  # the same with a program that is kept
MAX_TASKS_OF_PROGRAM = 50  # Chromium leaves an ended process of each, of which the sandbox allows 256
_USUAL_MEMORY = 4 << 20  # bytes that a worker does not share with its fork server after a small task
SPARE_TIMEOUT = 20.0  # seconds; enough to replace a fork server that does not answer


@dataclass(eq=False)
class Worker:
    """A worker process that is bound to an account, a fork of a template.

    `final` marks its last task. `succeeded` is set when that task has replied with a success and left its process as it
    was; otherwise the worker is retired. `memory` is what it does not share, in bytes, when last examined. One that
    `keeps_program` has a folder of it.
    """

    process: WorkerProcess
    account: str
    initial: tuple[int, int]  # bytes of resident memory and number of threads
    template: str = ""
    bound_at: float = field(default_factory=monotonic)
    tasks: int = 0
    final: bool = False
    succeeded: bool = False
    stopped: bool = False
    memory: int = _USUAL_MEMORY
    keeps_program: bool = False
    expiry: asyncio.TimerHandle | None = None

    def reason_to_retire(self) -> str | None:
        """Returns why the worker cannot take another task; None if it can."""
        if not self.succeeded:
            return "the task failed or changed its process"
        if self.final:
            return "its last task has ended"
        if monotonic() - self.bound_at > MAX_AGE:
            return "its age"
        if self.keeps_program and self.tasks >= MAX_TASKS_OF_PROGRAM:
            return "the number of tasks of its program"
        return None if self.process.is_waiting() else "it has ended or sent a second reply"

    def examine(self) -> str | None:
        """Observes the process from outside. Returns why it cannot take another task; None if it can."""
        try:
            memory, threads = self.process.memory_and_threads()
            if len([*self.process.folder.iterdir()]) > self.keeps_program:
                return "files are left"
        except OSError:
            return "it has ended"
        if threads > self.initial[1]:
            return "threads are left"
        growth = memory - self.initial[0]
        if growth > (MAX_GROWTH_OF_PROGRAM if self.keeps_program else MAX_GROWTH):
            return "its memory has grown"
        self.memory = max(memory if self.keeps_program else growth, _USUAL_MEMORY)
        return None if self.process.is_waiting() else "it has ended or sent a second reply"


class WorkerPool:
    """Worker processes of a fork server: spares that are forked ahead, by template, and idle workers.

    The template without a name has `spares` of them from the start, each other template one after `prepare` or its
    first task. Idle workers use at most `idle_memory` bytes, or what IDLE_WORKERS of the usual size use. A worker runs
    at most `jobs_per_process` tasks. `idle` begins with the least recently used worker.
    """

    def __init__(self, forkserver: ForkServer, spares: int, jobs_per_process: int, idle_memory: int = 0) -> None:
        self._forkserver = forkserver
        # Its own thread: the fork server is used by one at a time, and may not answer for seconds.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forkserver")
        self._size = spares
        self._jobs_per_process = jobs_per_process
        self._idle_memory = idle_memory
        self.spares: defaultdict[str, deque[WorkerProcess]] = defaultdict(deque)
        self.idle: list[Worker] = []
        self._busy = 0  # workers that run a task
        self._forking = Counter[str]()  # number of forks in progress, by template
        self._tasks: set[asyncio.Task[None]] = set()
        self._check: asyncio.Future[bool] | None = None
        self._closed = False

    async def start(self) -> None:
        """Starts the fork server and forks the spares. Raises ExecutorUnavailable."""
        for _ in range(self._size):
            await self._fork()

    def prepare(self, templates: Iterable[str]) -> None:
        """Begins to start templates and to fork a spare of each, one after the other, each while no task runs."""
        self._spawn(self._prepare([*templates]))

    async def _prepare(self, templates: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        for template in templates:
            while self._busy or not await loop.run_in_executor(self._thread, self._forkserver.prepare, template):
                await asyncio.sleep(PAUSE)
                if self._closed:
                    return
            await self._refill(template)

    async def close(self) -> None:
        """Ends all idle processes and the fork server, and with it all its workers."""
        self._closed = self._forkserver.closing = True
        for worker in [*self.idle]:
            self._retire(worker, "the executor is closed")
        if self._tasks:
            await asyncio.wait(self._tasks)
        for process in chain.from_iterable(self.spares.values()):
            process.discard()
        self.spares.clear()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._forkserver.close)
        self._thread.shutdown()

    @asynccontextmanager
    async def worker(self, account: str, *, own_process: bool, template: str = "") -> AsyncIterator[Worker]:
        """A worker of a template for one task of the account; with `own_process`, a new one for this task only.

        It becomes idle on exit if it can take another task; otherwise it is killed. Raises ExecutorUnavailable.
        """
        worker = None if own_process else self._take_idle(account, template)
        worker = worker or await self._bind_spare(account, template)
        worker.tasks += 1
        worker.final = own_process or worker.tasks >= self._jobs_per_process
        worker.succeeded = False
        self._busy += 1
        try:
            yield worker
        finally:
            self._busy -= 1
            if reason := "the executor is closed" if self._closed else worker.reason_to_retire():
                self._retire(worker, reason)
            else:
                self.idle.append(worker)
                if worker.tasks % UNEXAMINED_JOBS == 0:
                    self._stop(worker)
                else:
                    worker.expiry = asyncio.get_running_loop().call_later(PAUSE, self._stop, worker)
                while sum(each.memory for each in self.idle) > max(self._idle_memory, IDLE_WORKERS * _USUAL_MEMORY):
                    self._retire(self.idle[0], "the memory of idle workers is limited")
            # After the task, not beside it: forking competes for CPU.
            if self._lacks_spare(template):
                self._spawn(self._refill(template))

    async def ready(self) -> bool:
        """Returns whether a spare waits for a task, or one can be forked. That takes long if the machine is busy."""
        if self._closed:
            return False
        if any(process.is_waiting() for process in self.spares[""]):
            return True
        check = self._check
        if check is None or check.done():
            check = self._check = asyncio.get_running_loop().run_in_executor(self._thread, self._can_fork)
        await asyncio.wait([check])
        return check.result()

    def _can_fork(self) -> bool:
        try:
            self._forkserver.fork().discard()
        except ConversionError:
            return False
        return True

    def _take_idle(self, account: str, template: str) -> Worker | None:
        for worker in [*reversed(self.idle)]:
            if (worker.account, worker.template) != (account, template):
                continue
            if worker.process.is_waiting():
                self._remove_idle(worker)
                if worker.stopped:
                    worker.process.resume()
                    worker.stopped = False
                return worker
            # Its fork server may have died, and all others with it.
            for each in [*self.idle]:
                if not each.process.is_waiting():
                    self._retire(each, "it has ended")
        return None

    async def _bind_spare(self, account: str, template: str) -> Worker:
        spares = self.spares[template]
        while True:
            while not spares:
                # Not cancelled with the caller: the new process becomes a spare.
                forking = self._spawn(self._fork(template))
                if not (await asyncio.wait([forking], timeout=SPARE_TIMEOUT))[0]:
                    raise ExecutorUnavailable("No process was started for the conversion in time.")
                forking.result()
            process = spares.popleft()
            with suppress(OSError):  # it has ended
                if process.is_waiting():
                    return Worker(process, account, process.memory_and_threads(), template)
            process.discard()

    def _stop(self, worker: Worker) -> None:
        """Stops an idle worker, or retires it. Limits on time, memory and disk space are only watched during tasks."""
        if reason := worker.examine():
            self._retire(worker, reason)
            return
        worker.process.stop()
        worker.stopped = True
        seconds = min(IDLE_SECONDS, worker.bound_at + MAX_AGE - monotonic())
        worker.expiry = asyncio.get_running_loop().call_later(seconds, self._retire, worker, "it was idle")

    def _retire(self, worker: Worker, reason: str) -> None:
        log.debug("worker %d is retired: %s", worker.process.pid, reason)
        self._remove_idle(worker)
        worker.process.discard()

    def _remove_idle(self, worker: Worker) -> None:
        if worker.expiry is not None:
            worker.expiry.cancel()
            worker.expiry = None
        if worker in self.idle:
            self.idle.remove(worker)

    def _lacks_spare(self, template: str) -> bool:
        wanted = 1 if template else self._size
        return len(self.spares[template]) + self._forking[template] < wanted

    async def _refill(self, template: str) -> None:
        while not self._closed and self._lacks_spare(template):
            try:
                await self._fork(template)
            except ConversionError:  # raised again for the next task
                return

    async def _fork(self, template: str = "") -> None:
        if self._closed:
            raise ExecutorUnavailable("The executor is closed.")
        self._forking[template] += 1
        try:
            loop = asyncio.get_running_loop()
            forked = await loop.run_in_executor(self._thread, self._forkserver.fork, template)
            self.spares[template].append(forked)
        finally:
            self._forking[template] -= 1

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise reported as never retrieved if the task has been cancelled
