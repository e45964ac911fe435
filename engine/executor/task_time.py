"""The time of a task: its deadlines, and the CPU time of the processes that run it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol

from engine.errors import TimedOut
from engine.executor.tasks import TaskLimits

STEP = 0.25
"""Seconds after which the time of a task is updated."""

LONG = 0.25
"""Seconds of CPU time after which a task has a lower priority than shorter ones."""

LONG_OF_PROGRAM = 3.0
"""The same of a task that runs a program, which can be kept only until then."""

_IDLE_SHARE = 1 / 8  # share of idle time that counts: an idle process occupies a slot and memory


class Process(Protocol):
    """A process that runs a task."""

    def cpu_seconds(self, *, children: bool) -> float:
        """Its CPU time; with `children`, also that of all processes that it has started. Raises OSError if it ended."""

    def lower_priority(self) -> None:
        """Lowers the priority of the process and its children, for good."""


class TaskTime:
    """Counts up to the limits of a task, in steps: seconds since its start, and CPU time since a process runs it.

    After `long` seconds of CPU time, the process has a lower priority.

    While this process is stopped, it counts two steps at most. Otherwise, the stop of a machine would look like a task
    that exceeds its limit.
    """

    def __init__(self, limits: TaskLimits, long: float = LONG) -> None:
        self._limits = limits
        self._long = long
        self._counted = 0.0
        self._latest_step = 0.0  # time of the event loop
        self._process_start: float | None = None
        self._running: dict[Process, Callable[[], float]] = {}  # with what measures their CPU time
        self._cpu: dict[Process, float] = {}  # CPU time of running and ended processes, when last measured
        self._measured_at: dict[Process, float] = {}  # the `total` at that time
        self.is_long = False
        """Whether the process has a lower priority."""

    @property
    def total(self) -> float:
        """Seconds since the beginning of `limited`."""
        return self._counted + min(asyncio.get_running_loop().time() - self._latest_step, 2 * STEP)

    @property
    def of_process(self) -> float:
        """CPU seconds in `running`, as of the latest step or its end; of a process that waits, a share of its time."""
        if self._process_start is None:
            return 0.0
        return max(sum(self._cpu.values()), _IDLE_SHARE * (self.total - self._process_start))

    @contextmanager
    def running(self, process: Process, *, children: bool) -> Iterator[None]:
        """Measures a process, which the task may have waited for, while it runs the task, which may have `children`.

        Several processes can share a task. If one ends meanwhile, the time since the latest step counts.
        """
        before = 0.0
        with suppress(OSError):  # it has ended
            before = process.cpu_seconds(children=children)
        self._running[process] = lambda: process.cpu_seconds(children=children) - before
        self._cpu[process] = 0.0
        self._measured_at[process] = self.total
        if self._process_start is None:
            self._process_start = self.total
        try:
            yield
        finally:
            measure = self._running.pop(process)
            try:
                self._cpu[process] = measure()
            except OSError:
                self._cpu[process] += self.total - self._measured_at[process]

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Counts during the block, and cancels the block at the limit. Raises TimedOut."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:
                self._latest_step = loop.time()
                first_step = min(STEP, self._limits.seconds, self._limits.cpu)
                self._timer = loop.call_later(first_step, self._count, deadline)
                try:
                    yield
                finally:
                    self._timer.cancel()
        except TimeoutError:
            limits = self._limits
            of_cpu = self.of_process >= limits.cpu
            seconds = limits.cpu if of_cpu else limits.seconds
            message = f"The conversion took longer than {seconds:g} s{' of CPU time' if of_cpu else ''}."
            raise TimedOut(message, details={"max_seconds": seconds}) from None

    def _count(self, deadline: asyncio.Timeout) -> None:
        """Counts up to now, and later again, or expires the deadline."""
        loop = asyncio.get_running_loop()
        self._counted = self.total
        self._latest_step = loop.time()
        for process, measure in self._running.items():
            with suppress(OSError):  # it has ended; its part of the task, too, soon
                self._cpu[process] = measure()
                self._measured_at[process] = self._counted
        if not self.is_long and sum(self._cpu.values()) >= self._long:
            self.is_long = True
            for process in self._running:
                process.lower_priority()
        remaining = min(self._limits.seconds - self._counted, self._limits.cpu - self.of_process)
        if remaining > 0:
            self._timer = loop.call_later(min(STEP, remaining), self._count, deadline)
        else:
            deadline.reschedule(self._latest_step)
