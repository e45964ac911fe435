"""Executors whose processes load the misbehaving plugin, and jobs on files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine import sandbox
from engine.executor import Executor, Job, JobLimits, JobResult, LocalExecutor

MISBEHAVING = Path(__file__).parent / "misbehaving"
"""The folder of the misbehaving plugin."""

ACCOUNT = "account"


@asynccontextmanager
async def misbehaving(
    workers: int, layers: Collection[str] = sandbox.LAYERS, jobs_per_process: int = 100
) -> AsyncIterator[LocalExecutor]:
    """An executor whose fork server has started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MISBEHAVING)
        executor = LocalExecutor(workers, layers, jobs_per_process)
        await executor.start()
        try:
            yield executor
        finally:
            await executor.close()


class FileJob(NamedTuple):
    """A job with the paths of its files."""

    job: Job
    inputs: Sequence[Path]
    output: Path


async def run_files(
    executor: Executor, file_job: FileJob, limits: JobLimits = JobLimits(), account: str = ACCOUNT
) -> JobResult:
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
