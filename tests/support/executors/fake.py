"""Executors that run no jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.executor import Job, JobLimits, JobResult


class EndlessExecutor:
    """Runs every job until the job is cancelled."""

    def __init__(self) -> None:
        self.running = 0
        self.most_running = 0
        self.cancelled = 0

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
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


class FailingExecutor:
    """Raises the given errors, one for each job."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = iter(errors)

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        raise next(self._errors)

    async def ready(self) -> bool:
        return True
