"""The time of a job does not pass while the process that counts it is stopped."""

import asyncio
import time

import pytest

from engine.errors import TimedOut
from engine.executor import job_time
from engine.executor.job_time import JobTime

STOP = 0.5  # seconds


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_time, "STEP", 0.02)


async def test_a_stop_counts_two_steps() -> None:
    job = JobTime(10)
    async with job.limited():
        job.begin()
        time.sleep(STOP)  # noqa: ASYNC251, as if the process were stopped
        await asyncio.sleep(0)
        assert 0 < job.of_process < STOP / 2


async def test_a_stop_does_not_reach_the_limit() -> None:
    async with JobTime(STOP / 2).limited():
        time.sleep(STOP)  # noqa: ASYNC251
        for _ in range(3):
            await asyncio.sleep(0)


async def test_the_limit_ends_the_block() -> None:
    job = JobTime(0.1)
    begun = []

    async def run() -> None:
        async with job.limited():
            job.begin()
            begun.append(job.total)
            await asyncio.Event().wait()

    with pytest.raises(TimedOut) as caught:
        await run()
    assert caught.value.details == {"max_seconds": 0.1}
    assert job.of_process >= 0.1 - begun[0]


async def test_the_wait_for_a_process_does_not_count() -> None:
    job = JobTime(10)
    async with job.limited():
        await asyncio.sleep(0.1)
        assert job.of_process == 0
        waited = job.total
        job.begin()
        assert job.total - job.of_process > waited / 2
