"""How conversions run jobs: on work files, whose contents are in open files or in the blob store."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from engine.executor import Executor, Task, TaskLimits, TaskResult
from web.services.files.work_files import WorkFile


@runtime_checkable
class FileExecutor(Protocol):
    """Runs jobs on work files."""

    async def run_on_files(
        self, task: Task, account: str, inputs: Sequence[WorkFile], output: WorkFile, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        """Runs a job of an account and writes its result to `output`, or to the blob store as `output.stored`.

        The size of the result is in the outcome, and the result cannot be changed by the job any more. Raises
        ConversionError and the errors of WorkFile. Cancelling ends the job.
        """

    async def ready(self) -> bool:
        """Whether jobs can run now."""


class DescriptorExecutor:
    """Passes the descriptors of work files to an executor of this machine. All contents must be there."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def run_on_files(
        self, task: Task, account: str, inputs: Sequence[WorkFile], output: WorkFile, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        descriptors = [file.descriptor for file in inputs]
        result = await self._executor.run(task, account, descriptors, output.descriptor, limits)
        if not task.dry_run:
            await output.seal(result.outcome.processed_size)
        return result

    async def ready(self) -> bool:
        return await self._executor.ready()
