"""JobQueue: limits, timeouts and refusals."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest

from engine.errors import CorruptInput, ExecutorUnavailable, OutOfMemory, TimedOut
from tests.support.samples.storage import Clock
from web.api.errors import NotReady, RateLimited
from web.services import job_queue as module
from web.services.fair_queue import Overruns
from web.services.job_queue import JobQueue


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all job queues."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@asynccontextmanager
async def held(job_queue: JobQueue, *accounts: str, limit: int = 2, max_wait: float | None = 30) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for account in accounts:
            if max_wait is not None:
                job_queue.check(account, limit, max_wait)
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
    return (job_queue.running, job_queue.waiting, job_queue.oldest_wait) == (0, 0, 0)


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


async def test_a_job_that_passed_the_check_is_queued_though_the_queue_is_full() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=1)

    async def work() -> None:
        async with job_queue.acquire("c", 2):
            pass

    async with held(job_queue, "a"):
        job_queue.check("c", 2)
        first = await waiting(job_queue, "b")
        with pytest.raises(RateLimited):
            job_queue.check("c", 2)
        second = asyncio.create_task(work())
        await asyncio.sleep(0)
        assert job_queue.waiting == 2
    await asyncio.gather(first, second)


async def test_a_long_batch_does_not_delay_another_account() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=2)
    async with held(job_queue, "a"):
        batch = [await waiting(job_queue, "a", max_wait=None) for _ in range(50)]
        single = await waiting(job_queue, "b")
    await single
    assert sum(task.done() for task in batch) <= 2
    await asyncio.gather(*batch)


async def test_a_job_with_a_long_expected_wait_is_refused_with_a_retry_delay(clock: Clock) -> None:
    job_queue = JobQueue(1)
    async with held(job_queue, "a"):
        clock.now += 10
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


async def fail(job_queue: JobQueue, account: str, error: BaseException, clock: Clock, seconds: float = 0) -> None:
    """Runs a job that fails after `seconds`."""

    async def work() -> None:
        async with job_queue.acquire(account, 2):
            clock.now += seconds
            raise error

    with pytest.raises(type(error)):
        await work()


@pytest.mark.parametrize("error", [TimedOut("late"), OutOfMemory("large")])
async def test_accounts_whose_jobs_keep_exceeding_their_limits_share_one_slot(error: Exception, clock: Clock) -> None:
    job_queue = JobQueue(3)
    for _ in range(3):
        await fail(job_queue, "a", error, clock)
        await fail(job_queue, "b", error, clock)
        await fail(job_queue, "c", CorruptInput("broken"), clock)
    async with held(job_queue, "a"):
        second, other = await waiting(job_queue, "a"), await waiting(job_queue, "b")
        async with held(job_queue, "c", "c"):
            assert (job_queue.running, job_queue.waiting) == (3, 2)
    await asyncio.gather(second, other)
    assert is_empty(job_queue)


async def test_long_jobs_of_restricted_accounts_cause_no_refusal(clock: Clock) -> None:
    job_queue = JobQueue(1)
    for _ in range(3):
        await fail(job_queue, "a", TimedOut("late"), clock, 55)
    async with held(job_queue, "b"):
        first = await waiting(job_queue, "a")
        job_queue.check("a", 2)
        job_queue.check("c", 2)
        second = await waiting(job_queue, "c")
    await asyncio.gather(first, second)


@pytest.mark.parametrize(
    ("error", "seconds", "restricted"),
    [
        (asyncio.CancelledError(), 9, False),
        (asyncio.CancelledError(), 11, True),
        (CorruptInput("broken"), 9, False),
        (CorruptInput("broken"), 11, True),
        (ExecutorUnavailable("no process"), 11, False),
        (OSError("disk"), 11, False),
    ],
)
async def test_a_failure_after_a_long_time_is_an_overrun(
    clock: Clock, error: BaseException, seconds: float, *, restricted: bool
) -> None:
    job_queue = JobQueue(2)
    for _ in range(3):
        await fail(job_queue, "a", error, clock, seconds)
    async with held(job_queue, "a"):
        second = asyncio.create_task(held(job_queue, "a").__aenter__())
        await asyncio.sleep(0)
        assert bool(job_queue.waiting) is restricted
    await second


def test_a_restriction_ends_ten_minutes_after_the_latest_overrun() -> None:
    clock = Clock()
    overruns = Overruns(clock)
    for _ in range(3):
        assert not overruns.is_restricted("a")
        overruns.record_overrun("a")
        clock.now += 599
    assert overruns.is_restricted("a")
    overruns.record_overrun("a")
    clock.now += 599
    assert overruns.is_restricted("a")
    clock.now += 2
    assert not overruns.is_restricted("a")
    overruns.record_overrun("b")
    assert len(overruns) == 1


def test_jobs_that_find_no_slot_do_not_end_the_restriction() -> None:
    clock = Clock()
    overruns = Overruns(clock)
    for _ in range(3):
        overruns.record_overrun("a")
    clock.now += 599
    overruns.record_refusal("a")
    overruns.record_refusal("b")
    clock.now += 599
    assert overruns.is_restricted("a")
    assert not overruns.is_restricted("b")
    clock.now += 2
    assert not overruns.is_restricted("a")


def test_successes_make_up_for_overruns() -> None:
    overruns = Overruns()
    for _ in range(4):
        overruns.record_overrun("a")
    for _ in range(20):
        assert overruns.is_restricted("a")
        overruns.record_success("a")
    assert not overruns.is_restricted("a")
    for _ in range(25):
        overruns.record_success("a")
    assert len(overruns) == 0


def test_a_restriction_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    overruns = Overruns()
    for _ in range(5):
        overruns.record_overrun("acct_1")
    assert [record.getMessage() for record in caplog.records] == [
        "account acct_1 is restricted: its jobs keep exceeding their limits"
    ]


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


async def test_admitted_jobs_count_before_they_start() -> None:
    job_queue = JobQueue(1, max_jobs_ahead=2)
    with ExitStack() as stack:
        first, *_ = [stack.enter_context(job_queue.admit("a", 8)) for _ in range(3)]  # one can start at once
        with pytest.raises(RateLimited):
            stack.enter_context(job_queue.admit("a", 8))
        async with asyncio.timeout(5), job_queue.acquire("a", 8, admitted=first):
            assert (job_queue.running, job_queue.waiting) == (1, 2)
    assert (job_queue.running, job_queue.waiting) == (0, 0)
    async with asyncio.timeout(5), job_queue.acquire("a", 8):
        pass


async def test_a_queue_of_jobs_that_do_not_become_ready_is_not_full(clock: Clock) -> None:
    job_queue = JobQueue(1, max_jobs_ahead=1)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(job_queue.admit("a", 8))
        with pytest.raises(RateLimited):
            job_queue.check("a", 8)
        clock.now += 1.1
        with pytest.raises(NotReady):
            job_queue.check("a", 8)
