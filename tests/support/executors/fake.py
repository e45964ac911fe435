"""Executors that run no jobs."""

import asyncio
from collections.abc import Sequence

from engine.errors import StepFailed
from engine.executor import Executor, Task, TaskLimits, TaskResult


class EndlessExecutor:
    """Runs every job until the job is cancelled. Before that, raises `errors`, one for each job."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors]
        self.running = 0
        self.most_running = 0
        self.cancelled = 0

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        if self._errors:
            raise self._errors.pop()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        raise AssertionError

    async def ready(self) -> bool:
        return True


class SwitchedExecutor:
    """Passes jobs on to `executor`, which a test replaces."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        return await self.executor.run(task, account, inputs, output, limits)

    async def ready(self) -> bool:
        return True


class HeldExecutor(SwitchedExecutor):
    """Passes jobs on once it is `open`."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.open = asyncio.Event()

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        await self.open.wait()
        return await super().run(task, account, inputs, output, limits)


class RecordingExecutor:
    """Records jobs and their accounts, and raises StepFailed, or passes the jobs on to `executor` if there is one."""

    def __init__(self, executor: Executor | None = None) -> None:
        self.jobs: list[Task] = []
        self.accounts: list[str] = []
        self._executor = executor

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        self.jobs.append(task)
        self.accounts.append(account)
        if self._executor is None:
            raise StepFailed("Nothing is done here.")
        return await self._executor.run(task, account, inputs, output, limits)

    async def ready(self) -> bool:
        return True


class FailingExecutor:
    """Raises the given errors, one for each job."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = iter(errors)

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        raise next(self._errors)

    async def ready(self) -> bool:
        return True
