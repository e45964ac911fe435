"""Admission: limits, timeouts and refusals."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest

from engine.errors import CorruptInput, TimedOut
from engine.planner import Plan
from engine.registry import load_registry
from tests.support.samples.storage import Clock
from web.api.errors import NotReady, RateLimited
from web.services.admission.admission import SHORT_DEADLINE, Admission
from web.services.admission.fair_queue import Kind, QueuedTask, Standing, Tenant
from web.services.admission.task_costs import START, TaskCost, planned_seconds
from web.services.admission.tenant_records import PROVING_JOBS


def cost(seconds: float = 1.0) -> TaskCost:
    """The cost of jobs that are expected to use this CPU time."""
    return TaskCost((seconds,), seconds)


@asynccontextmanager
async def held(
    admission: Admission, *tenants: str, limit: int = 2, max_wait: float = 30, seconds: float = 1.0
) -> AsyncIterator[None]:
    """Runs jobs that are expected to use this CPU time."""
    async with AsyncExitStack() as stack:
        for tenant in tenants:
            job = stack.enter_context(admission.admit(Tenant(tenant, limit), cost(seconds)))
            await stack.enter_async_context(admission.acquire(job, max_wait=max_wait))
        yield


async def waiting(admission: Admission, tenant: str, seconds: float = 1.0) -> asyncio.Task[None]:
    """A queued job that ends as soon as it starts."""

    async def work() -> None:
        async with held(admission, tenant, seconds=seconds):
            pass

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert admission.waiting
    return task


async def succeed(
    admission: Admission, clock: Clock, seconds: float, *tenants: str, key: float = 1.0, stretch: float = 1.0
) -> None:
    """Runs jobs that each use `seconds` of CPU time, and are in their slot `stretch` times as long."""
    for tenant in tenants:
        with admission.admit(Tenant(tenant, 2), cost(key)) as job:
            async with admission.acquire(job):
                clock.now += seconds * stretch
                job.used = job.seconds = seconds


def check(admission: Admission, tenant: str, limit: int = 2) -> None:
    admission.check(Tenant(tenant, limit))


def is_empty(admission: Admission) -> bool:
    return (admission.running, admission.waiting, admission.oldest_wait) == (0, 0, 0)


async def test_an_account_at_its_limit_does_not_block_others() -> None:
    admission = Admission(10)
    async with held(admission, "a", "a"):
        with pytest.raises(RateLimited) as refused:
            await held(admission, "a", max_wait=0.05).__aenter__()
        assert (refused.value.reason, refused.value.retry_after) == ("queue_full", 1)
        async with held(admission, "b"):
            assert admission.running == 3
    assert is_empty(admission)
    assert admission.refused == {"late": 1}


async def test_check_raises_what_admit_would_and_queues_nothing(clock: Clock) -> None:
    """It takes a job to be as the latest ones of its tenant."""
    admission = Admission(1, clock=clock)
    await succeed(admission, clock, 8, *"b" * 20)
    async with held(admission, "a"):
        tasks = [await waiting(admission, "b", seconds=8) for _ in range(2)]
        with pytest.raises(RateLimited) as refused:
            check(admission, "b")
        assert (refused.value.reason, refused.value.retry_after) == ("queue_full", 16)
        with pytest.raises(RateLimited):
            await held(admission, "b", seconds=8).__aenter__()
        check(admission, "a")
        assert admission.waiting == 2
    await asyncio.gather(*tasks)
    assert is_empty(admission)
    assert admission.refused == {"full": 2}
    admission.close()
    with pytest.raises(NotReady):
        check(admission, "b")


async def test_waits_are_expected_by_cpu_time_and_how_long_it_takes(clock: Clock) -> None:
    """Eight documents of one second wait for four seconds, on a machine that is busy with others for more."""
    admission = Admission(2, clock=clock)
    async with held(admission, "a", "b"):
        tasks = [await waiting(admission, "c") for _ in range(16)]
        check(admission, "d")
    await asyncio.gather(*tasks)
    await succeed(admission, clock, 1, *"c" * 50, stretch=4)
    async with held(admission, "c", "c"):
        tasks = [await waiting(admission, "c") for _ in range(8)]
        with pytest.raises(RateLimited):
            check(admission, "c")
    await asyncio.gather(*tasks)


async def test_many_short_jobs_are_not_refused(clock: Clock) -> None:
    admission = Admission(2, clock=clock)
    async with held(admission, "a", "a", seconds=START):
        tasks = [await waiting(admission, "a", seconds=START) for _ in range(1000)]
    await asyncio.gather(*tasks)


async def test_a_job_that_others_like_it_took_long_for_is_long(clock: Clock) -> None:
    admission = Admission(1, clock=clock)
    async with held(admission, "a"), held(admission, "b", seconds=0.1):
        assert admission.running == 2
    await succeed(admission, clock, 9, *"b" * 20, key=0.1)
    async with held(admission, "a"):
        late = await waiting(admission, "b", seconds=0.1)
        assert admission.waiting == 1
    await late


async def test_a_short_job_that_does_not_end_frees_its_slot() -> None:
    admission = Admission(1)
    async with held(admission, "a", seconds=0.1):
        other = await waiting(admission, "b", seconds=0.1)
        async with asyncio.timeout(20):
            await other
        assert (admission.running, admission.waiting) == (1, 0)


async def test_an_admitted_job_is_queued_though_the_queue_is_full_by_now(clock: Clock) -> None:
    admission = Admission(1, clock=clock)
    await succeed(admission, clock, 30, *"bbbb")
    async with held(admission, "a"):
        with admission.admit(Tenant("c", 2), cost(30)) as job:
            with pytest.raises(RateLimited):
                check(admission, "b")
            acquiring = asyncio.create_task(admission.acquire(job).__aenter__())
            await asyncio.sleep(0)
            assert admission.waiting == 1
    await acquiring


async def test_a_long_batch_does_not_delay_another_tenant() -> None:
    admission = Admission(1)
    async with held(admission, "a"):
        batch = [await waiting(admission, "a", seconds=0.26) for _ in range(50)]
        single = await waiting(admission, "b")
    await single
    assert sum(task.done() for task in batch) <= 2
    await asyncio.gather(*batch)


async def test_a_cancelled_job_leaves_the_queue_at_once() -> None:
    admission = Admission(1)
    async with held(admission, "a"):
        gone = await waiting(admission, "b")
        gone.cancel()
        await asyncio.wait([gone])
        assert admission.waiting == 0
        stays = await waiting(admission, "b")
    await stays


async def test_a_job_cancelled_as_it_starts_frees_its_slot() -> None:
    admission = Admission(1)
    async with held(admission, "a"):
        gone, next_one = await waiting(admission, "b"), await waiting(admission, "c")
        gone.cancel()  # the task sees the cancellation only after its job has started
    await asyncio.wait([gone, next_one], timeout=5)
    assert next_one.done()
    assert is_empty(admission)


async def test_closing_refuses_queued_jobs_and_lets_running_ones_end() -> None:
    admission = Admission(1)
    async with held(admission, "a"):
        refused = [await waiting(admission, "b"), await waiting(admission, "c")]
        admission.close()
        for error in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(error, NotReady)
        with pytest.raises(NotReady):
            await held(admission, "a").__aenter__()
        assert admission.running == 1
    assert is_empty(admission)
    assert admission.refused == {"stopping": 3}


@pytest.mark.parametrize("seed", range(20))
async def test_no_start_is_lost_under_random_arrivals_and_cancellations(seed: int, clock: Clock) -> None:
    chance = random.Random(seed)
    admission = Admission(2, memory=10, clock=clock)
    max_wait = 1e6  # seconds: a slow machine causes no refusal
    await succeed(admission, clock, 0, *"a" * 50)
    memory = 0

    async def work(tenant: str, needs: int, steps: int) -> None:
        nonlocal memory
        with admission.admit(Tenant(tenant, 2), cost()) as job:
            async with admission.acquire(job, needs, max_wait):
                memory += needs
                assert admission.running <= 2
                assert memory <= 10 or admission.running == 1
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
    assert is_empty(admission)


async def test_admitted_jobs_count_before_they_start(clock: Clock) -> None:
    admission = Admission(1, clock=clock)
    await succeed(admission, clock, 10, *"a" * 50)
    with ExitStack() as stack:
        first, *_ = [
            stack.enter_context(admission.admit(Tenant("a", 8), cost(10))) for _ in range(2)
        ]  # one can start at once
        with pytest.raises(RateLimited):
            stack.enter_context(admission.admit(Tenant("a", 8), cost(10)))
        async with asyncio.timeout(5), admission.acquire(first):
            assert (admission.running, admission.waiting) == (1, 1)
    assert is_empty(admission)
    async with asyncio.timeout(5), held(admission, "a"):
        pass


async def test_a_queue_of_jobs_that_do_not_become_ready_is_not_full(clock: Clock) -> None:
    admission = Admission(1, clock=clock)
    await succeed(admission, clock, 10, *"a" * 50)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(admission.admit(Tenant("a", 8), cost(10)))
        with pytest.raises(RateLimited):
            check(admission, "a", 8)
        clock.now += 1.1
        with pytest.raises(NotReady):
            check(admission, "a", 8)


async def test_failures_after_a_long_time_restrict_a_tenant() -> None:
    """Its jobs then share one slot of three with those of other restricted tenants, and have a short deadline."""
    admission, registry = Admission(3), load_registry()
    plan = registry.plan([registry.formats["jpeg"]], "png")
    assert cpu_limit(admission, Tenant("a", 2), plan) == 110
    for _ in range(3):
        await fail(admission, "a", 6)
        await fail(admission, "b", 6)
        await fail(admission, "c", None)
    assert cpu_limit(admission, Tenant("a", 2), plan) == SHORT_DEADLINE + planned_seconds(plan, 1)
    async with held(admission, "a"):
        second, other = await waiting(admission, "a"), await waiting(admission, "b")
        async with held(admission, "c", "c"):
            assert (admission.running, admission.waiting) == (3, 2)
    await asyncio.gather(second, other)
    assert is_empty(admission)


async def fail(admission: Admission, tenant: str, seconds: float | None) -> None:
    """Runs a job that fails, and of which an executor reports `seconds`."""

    async def work() -> None:
        async with held(admission, tenant):
            error = CorruptInput("broken")
            error.seconds = seconds
            raise error

    with pytest.raises(CorruptInput):
        await work()


def cpu_limit(admission: Admission, tenant: Tenant, plan: Plan, seconds: float | None = None) -> float:
    kind = Kind.LONG if seconds is None else Kind.BACKGROUND
    return admission.limits(QueuedTask(tenant, 0, 0, kind), [plan], 1, seconds).cpu


def test_new_tenants_have_a_short_deadline() -> None:
    """In requests and in jobs, and beside what a plan needs."""
    registry, new = load_registry(), Tenant("a", 2, is_new=True)
    image = registry.plan([registry.formats["jpeg"]], "png")
    document = registry.plan([registry.formats["docx"]], "pdf")
    for seconds in (None, 900.0):
        assert cpu_limit(Admission(2), new, image, seconds) == pytest.approx(SHORT_DEADLINE, abs=0.1)
        assert cpu_limit(Admission(2), new, document, seconds) >= SHORT_DEADLINE + 3
    assert cpu_limit(Admission(2), Tenant("a", 2), image, 900) == 1800


async def test_jobs_in_the_background_count_as_requests_do(clock: Clock) -> None:
    admission, tenant = Admission(4, clock=clock), Tenant("a", 2)
    for _ in range(PROVING_JOBS):
        with admission.admit_background(tenant) as job:
            async with admission.acquire(job):
                job.used = job.seconds = 0.1
    assert admission.standing(tenant) is Standing.PROVEN
    for _ in range(3):
        abandoned = asyncio.CancelledError()
        abandoned.__cause__ = TimedOut("late")
        abandoned.__cause__.seconds = 6
        with pytest.raises(asyncio.CancelledError), admission.admit_background(tenant) as job:
            async with admission.acquire(job):
                raise abandoned
        assert job.used == 6
    assert admission.standing(tenant) is Standing.RESTRICTED
