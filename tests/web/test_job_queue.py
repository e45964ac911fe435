"""Turns: how many at a time, how long to wait, and who is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from web.api.errors import NotReady, RateLimited
from web.services.job_queue import JobQueue


@asynccontextmanager
async def held(job_queue: JobQueue, *accounts: str, limit: int = 2, patience: float | None = 30) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for account in accounts:
            await stack.enter_async_context(job_queue.taken(account, limit, patience=patience))
        yield


async def waiting(job_queue: JobQueue, account: str, patience: float | None = 30) -> asyncio.Task[None]:
    """One that waits for a turn and gives it back at once."""

    async def work() -> None:
        async with held(job_queue, account, patience=patience):
            pass

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert job_queue.waiting
    return task


def nothing_is_left(job_queue: JobQueue) -> bool:
    return (job_queue.running, job_queue.waiting, job_queue.oldest_wait) == (0, 0, 0) and not job_queue._line._accounts


async def test_an_account_waits_for_itself_and_not_for_others() -> None:
    job_queue = JobQueue(10)
    async with held(job_queue, "a", "a"):
        with pytest.raises(RateLimited) as refused:
            await held(job_queue, "a", patience=0.05).__aenter__()
        assert (refused.value.reason, refused.value.headers["Retry-After"]) == ("queue_full", "1")
        async with held(job_queue, "b"):
            assert job_queue.running == 3
    assert nothing_is_left(job_queue)
    assert job_queue.refused == {"late": 1}


async def test_a_full_line_takes_nobody_but_those_with_no_bound() -> None:
    job_queue = JobQueue(1, rounds=1)
    async with held(job_queue, "a"):
        first = await waiting(job_queue, "b")
        with pytest.raises(RateLimited):
            await held(job_queue, "c").__aenter__()
        patient = await waiting(job_queue, "c", patience=None)
        assert job_queue.waiting == 2
        assert job_queue.oldest_wait > 0
    await asyncio.gather(first, patient)
    assert nothing_is_left(job_queue)
    assert job_queue.refused == {"full": 1}


async def test_a_check_raises_what_a_new_job_would_and_registers_nothing() -> None:
    job_queue = JobQueue(1, rounds=2)
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
    assert nothing_is_left(job_queue)
    assert job_queue.refused == {"full": 2}
    job_queue.close()
    with pytest.raises(NotReady):
        job_queue.check("b", 2)


async def test_one_that_waits_for_all_its_files_keeps_nobody_else_out() -> None:
    job_queue = JobQueue(1, rounds=2)
    async with held(job_queue, "a"):
        batch = [await waiting(job_queue, "a", patience=None) for _ in range(50)]
        single = await waiting(job_queue, "b")
    await single
    assert sum(task.done() for task in batch) <= 2
    await asyncio.gather(*batch)


async def test_who_would_wait_in_vain_is_refused_at_once_and_told_when_to_come_back() -> None:
    job_queue = JobQueue(1)
    job_queue._learn(10)
    async with held(job_queue, "a"):
        first = await waiting(job_queue, "b")
        with pytest.raises(RateLimited) as refused:
            await held(job_queue, "b").__aenter__()
    assert refused.value.headers["Retry-After"] == "20"
    await first


async def test_a_client_that_goes_leaves_the_line_at_once() -> None:
    job_queue = JobQueue(1, rounds=1)
    async with held(job_queue, "a"):
        gone = await waiting(job_queue, "b")
        gone.cancel()
        await asyncio.wait([gone])
        assert job_queue.waiting == 0
        stays = await waiting(job_queue, "b")
    await stays


async def test_one_that_is_called_and_cancelled_at_once_passes_its_turn_on() -> None:
    job_queue = JobQueue(1)
    async with held(job_queue, "a"):
        gone, next_one = await waiting(job_queue, "b"), await waiting(job_queue, "c")
        gone.cancel()  # its task learns of it only after the turn has come
    await asyncio.wait([gone, next_one], timeout=5)
    assert next_one.done()
    assert nothing_is_left(job_queue)


async def test_closing_refuses_those_who_wait_and_lets_the_others_end() -> None:
    job_queue = JobQueue(1)
    async with held(job_queue, "a"):
        refused = [await waiting(job_queue, "b"), await waiting(job_queue, "c", patience=None)]
        job_queue.close()
        for error in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(error, NotReady)
        with pytest.raises(NotReady):
            await held(job_queue, "a").__aenter__()
        assert job_queue.running == 1
    assert nothing_is_left(job_queue)
    assert job_queue.refused == {"stopping": 3}


@pytest.mark.parametrize("seed", range(20))
async def test_no_call_is_lost_when_clients_come_and_go(seed: int) -> None:
    chance = random.Random(seed)
    job_queue = JobQueue(2, memory=10, rounds=10**6)
    patience = 1e6  # seconds: nobody is refused for the machine being slow
    memory = 0

    async def work(account: str, needs: int, steps: int) -> None:
        nonlocal memory
        async with job_queue.taken(account, 2, memory=needs, patience=patience):
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
    assert nothing_is_left(job_queue)
