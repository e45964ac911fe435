"""The time of a job: CPU time of its process, which does not pass while the process that counts it is stopped."""

import asyncio
import time

import pytest

from engine.errors import TimedOut
from engine.executor import task_time
from engine.executor.task_time import TaskTime
from engine.executor.tasks import TaskLimits

STOP = 0.5  # seconds


class Process:
    """A process that has used `cpu` seconds, or has ended."""

    def __init__(self, cpu: float = 3.0) -> None:
        self.cpu: float | None = cpu
        self.lowered = 0

    def cpu_seconds(self, *, children: bool) -> float:
        assert children
        if self.cpu is None:
            raise ProcessLookupError
        return self.cpu

    def lower_priority(self) -> None:
        self.lowered += 1


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_time, "STEP", 0.02)


async def test_a_stop_counts_two_steps() -> None:
    job = TaskTime(TaskLimits())
    async with job.limited():
        time.sleep(STOP)  # noqa: ASYNC251, as if the process were stopped
        await asyncio.sleep(0)
        assert 0 < job.total < STOP / 2


async def test_a_stop_does_not_reach_the_limit() -> None:
    async with TaskTime(TaskLimits(seconds=STOP / 2)).limited():
        time.sleep(STOP)  # noqa: ASYNC251
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limits", "cpu", "details"),
    [
        (TaskLimits(seconds=0.1), 3.0, {"max_seconds": 0.1}),
        (TaskLimits(cpu=0.01), 3.0, {"max_seconds": 0.01}),  # it does not compute, but occupies a slot
        (TaskLimits(cpu=1.5), 4.5, {"max_seconds": 1.5}),
    ],
)
async def test_a_limit_ends_the_block(limits: TaskLimits, cpu: float, details: dict[str, float]) -> None:
    job, process = TaskTime(limits), Process()

    async def run() -> None:
        async with job.limited():
            with job.running(process, children=True):
                process.cpu = cpu
                await asyncio.Event().wait()

    with pytest.raises(TimedOut) as caught:
        async with asyncio.timeout(20):
            await run()
    assert caught.value.details == details
    assert job.of_process >= cpu - 3


async def test_cpu_time_below_the_limit_does_not_end_the_block() -> None:
    """A slow machine runs the job for longer than its limit on CPU time."""
    job, process = TaskTime(TaskLimits(seconds=50, cpu=0.1)), Process()
    async with job.limited():
        with job.running(process, children=True):
            process.cpu = 3.05
            await asyncio.sleep(0.2)
        assert job.of_process == pytest.approx(0.05)


async def test_the_wait_for_a_process_does_not_count() -> None:
    job = TaskTime(TaskLimits())
    async with job.limited():
        await asyncio.sleep(0.1)
        assert job.of_process == 0
        with job.running(Process(), children=True):
            assert job.of_process < 0.1 / 8


async def test_a_process_that_has_ended_counts_since_the_latest_step() -> None:
    job, process = TaskTime(TaskLimits()), Process()
    async with job.limited():
        with job.running(process, children=True):
            process.cpu = 4.0
            await asyncio.sleep(0.05)
            process.cpu = None
            await asyncio.sleep(0.05)
        assert 1.02 < job.of_process < 2


@pytest.mark.parametrize(("cpu", "times"), [(task_time.LONG - 0.01, 0), (task_time.LONG, 1)])
async def test_a_long_job_loses_priority_once(cpu: float, times: int) -> None:
    job, process = TaskTime(TaskLimits()), Process(0.0)
    async with job.limited():
        with job.running(process, children=True):
            process.cpu = cpu
            await asyncio.sleep(0.1)
    assert (process.lowered, job.is_long) == (times, bool(times))
