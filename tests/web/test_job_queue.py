"""JobQueue: limits, timeouts and refusals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from web.api.errors import NotReady, RateLimited
from web.services.job_queue import JobQueue


@asynccontextmanager
async def held(job_queue: JobQueue, *accounts: str, limit: int = 2, max_wait: float | None = 30) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for account in accounts:
            await stack.enter_async_context(job_queue.acquire(account, limit, max_wait=max_wait))
        yield


async def waiting(job_queue: JobQueue, account: str, max_wait: float | None = 30) -> asyncio.Task[None]:
    """A queued job that ends as soon as it starts."""

    async def work() -> None:
        async with held(job_queue, account, max_wait=max_wait):
            pass

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert job_queue.waiting
    return task


def is_empty(job_queue: JobQueue) -> bool:
    return (job_queue.running, job_queue.waiting, job_queue.oldest_wait) == (0, 0, 0) and not job_queue._queue._accounts


async def test_an_account_at_its_limit_does_not_block_others() -> None:
    job_queue = JobQueue(10)
    async with held(job_queue, "a", "a"):
        with pytest.raises(RateLimited) as refused:
            await held(job_queue, "a", max_wait=0.05).__aenter__()
        assert (refused.value.reason, refused.value.retry_after) == ("queue_full", 1)
        async with held(job_queue, "b"):
            assert job_queue.running == 3
    assert is_empty(job_queue)
    assert job_queue.refused == {"late": 1}


async def test_a_full_queue_accepts_only_jobs_without_a_timeout() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=1)
    async with held(job_queue, "a"):
        first = await waiting(job_queue, "b")
        with pytest.raises(RateLimited):
            await held(job_queue, "c").__aenter__()
        unbounded = await waiting(job_queue, "c", max_wait=None)
        assert job_queue.waiting == 2
        assert job_queue.oldest_wait > 0
    await asyncio.gather(first, unbounded)
    assert is_empty(job_queue)
    assert job_queue.refused == {"full": 1}


async def test_check_raises_what_acquire_would_and_queues_nothing() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=2)
    async with held(job_queue, "a"):
        for _ in range(10):
            job_queue.check("b", 2)
        first = await waiting(job_queue, "b")
        job_queue.check("b", 2)
        second = await waiting(job_queue, "c")
        with pytest.raises(RateLimited) as refused:
            job_queue.check("b", 2)
        assert refused.value.reason == "queue_full"
        with pytest.raises(RateLimited):
            await held(job_queue, "b").__aenter__()
    await asyncio.gather(first, second)
    assert is_empty(job_queue)
    assert job_queue.refused == {"full": 2}
    job_queue.close()
    with pytest.raises(NotReady):
        job_queue.check("b", 2)


async def test_a_long_batch_does_not_delay_another_account() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=2)
    async with held(job_queue, "a"):
        batch = [await waiting(job_queue, "a", max_wait=None) for _ in range(50)]
        single = await waiting(job_queue, "b")
    await single
    assert sum(task.done() for task in batch) <= 2
    await asyncio.gather(*batch)


async def test_a_job_with_a_long_expected_wait_is_refused_with_a_retry_delay() -> None:
    job_queue = JobQueue(1)
    job_queue._update_mean(10)
    async with held(job_queue, "a"):
        first = await waiting(job_queue, "b")
        with pytest.raises(RateLimited) as refused:
            await held(job_queue, "b").__aenter__()
    assert refused.value.retry_after == 20
    await first


async def test_a_cancelled_job_leaves_the_queue_at_once() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=1)
    async with held(job_queue, "a"):
        gone = await waiting(job_queue, "b")
        gone.cancel()
        await asyncio.wait([gone])
        assert job_queue.waiting == 0
        stays = await waiting(job_queue, "b")
    await stays


async def test_a_job_cancelled_as_it_starts_frees_its_slot() -> None:
    job_queue = JobQueue(1)
    async with held(job_queue, "a"):
        gone, next_one = await waiting(job_queue, "b"), await waiting(job_queue, "c")
        gone.cancel()  # the task sees the cancellation only after its job has started
    await asyncio.wait([gone, next_one], timeout=5)
    assert next_one.done()
    assert is_empty(job_queue)


async def test_closing_refuses_queued_jobs_and_lets_running_ones_end() -> None:
    job_queue = JobQueue(1)
    async with held(job_queue, "a"):
        refused = [await waiting(job_queue, "b"), await waiting(job_queue, "c", max_wait=None)]
        job_queue.close()
        for error in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(error, NotReady)
        with pytest.raises(NotReady):
            await held(job_queue, "a").__aenter__()
        assert job_queue.running == 1
    assert is_empty(job_queue)
    assert job_queue.refused == {"stopping": 3}


@pytest.mark.parametrize("seed", range(20))
async def test_no_start_is_lost_under_random_arrivals_and_cancellations(seed: int) -> None:
    chance = random.Random(seed)
    job_queue = JobQueue(2, memory=10, max_jobs_ahead=10**6)
    max_wait = 1e6  # seconds: a slow machine causes no refusal
    memory = 0

    async def work(account: str, needs: int, steps: int) -> None:
        nonlocal memory
        async with job_queue.acquire(account, 2, memory=needs, max_wait=max_wait):
            memory += needs
            assert job_queue.running <= 2
            assert memory <= 10 or job_queue.running == 1
            try:
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                memory -= needs

    tasks = []
    for _ in range(300):
        tasks.append(asyncio.create_task(work(chance.choice("abc"), chance.choice([1, 4, 8, 20]), chance.randrange(4))))
        if chance.random() < 0.4:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    async with asyncio.timeout(20):
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    assert is_empty(job_queue)
