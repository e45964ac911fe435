"""Several job queues that share their limits and their order through Redis, as the processes of a server do."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from benchmarks.redis_server import RedisServer
from engine.errors import OutOfMemory
from storage.ids import new_id
from tests.support.servers.in_process import eventually
from web.api.errors import RateLimited
from web.services.fair_queue import Tenant
from web.services.job_queue import JobQueue
from web.services.job_records import PROVING_JOBS

_LEASE = 0.5  # seconds
_HOLD = """
import asyncio, sys
from web.services.fair_queue import Tenant
from web.services.job_queue import JobQueue

async def main(url, pool):
    queue = JobQueue(1)
    queue.share(url, pool, "killed", 0.5)
    running = asyncio.create_task(queue.run())
    with queue.admit(Tenant("a", 1)) as job:
        async with queue.acquire(job, 1):
            print("runs", flush=True)
            await running

asyncio.run(main(*sys.argv[1:]))
"""


class Queues:
    """The job queues of some processes, and the tenants whose jobs run."""

    def __init__(
        self,
        redis: RedisServer,
        processes: int,
        slots: int,
        *,
        memory: float = 10**9,
        pool: str = "",
        lease: float = _LEASE,
    ) -> None:
        self._queues = [JobQueue(slots, memory=memory, processes=processes) for _ in range(processes)]
        self.pool = pool or new_id("pool")
        for queue in self._queues:
            queue.share(redis.url, self.pool, new_id("process"), lease)
        self._tasks: list[asyncio.Task[None]] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.started: list[str] = []

    async def __aenter__(self) -> "Queues":
        self._tasks = [asyncio.create_task(queue.run()) for queue in self._queues]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        assert all(task.cancelled() for task in self._tasks)

    def __getitem__(self, number: int) -> JobQueue:
        return self._queues[number % len(self._queues)]

    @asynccontextmanager
    async def held(
        self,
        number: int,
        tenant: str,
        *,
        memory: int = 1,
        limit: int = 8,
        max_wait: float = 30,
        background: bool = False,
    ) -> AsyncIterator[None]:
        """Runs a job during the block."""
        with self[number].admit(Tenant(tenant, limit), background=background) as job:
            async with self[number].acquire(job, memory, max_wait):
                job.seconds = 0.1
                self.started.append(tenant)
                for name in (tenant, "all"):
                    self.running[name] += 1
                    self.most[name] = max(self.most[name], self.running[name])
                try:
                    yield
                finally:
                    self.running.subtract([tenant, "all"])

    async def work(self, number: int, tenant: str, *, memory: int = 1, limit: int = 8, seconds: float = 0.002) -> None:
        async with self.held(number, tenant, memory=memory, limit=limit):
            await asyncio.sleep(seconds)

    async def cannot_start(self, number: int, tenant: str, *, memory: int = 1, limit: int = 8) -> bool:
        """Whether a new job has to wait."""
        with pytest.raises(RateLimited):
            await self.held(number, tenant, memory=memory, limit=limit, max_wait=0.1).__aenter__()
        return True


async def test_limits_hold_over_processes(redis_server: RedisServer) -> None:
    async with Queues(redis_server, 3, slots=3) as queues:
        await asyncio.gather(*(queues.work(number, "ab"[number % 2], limit=2) for number in range(120)))
        assert len(queues.started) == 120
    assert queues.most == {"a": 2, "b": 2, "all": 3}


async def test_one_process_uses_the_slots_that_others_leave(redis_server: RedisServer) -> None:
    async with Queues(redis_server, 3, slots=3) as queues:
        await asyncio.gather(*(queues.work(0, "a") for _ in range(9)))
    assert queues.most["all"] == 3


async def test_slots_are_those_of_the_pool_and_limits_of_accounts_those_of_all(redis_server: RedisServer) -> None:
    one, other = Queues(redis_server, 1, slots=1), Queues(redis_server, 1, slots=1)
    async with one, other, one.held(0, "a", limit=1):
        assert await other.cannot_start(0, "a", limit=1)
        async with other.held(0, "b"):
            assert await one.cannot_start(0, "c")


async def test_the_background_has_all_slots_until_requests_come(redis_server: RedisServer) -> None:
    """They start beside it, and leave it half of the slots."""
    async with Queues(redis_server, 2, slots=2) as queues:
        async with queues.held(0, "a", background=True), queues.held(1, "b", background=True):
            with pytest.raises(RateLimited):
                await queues.held(0, "c", background=True, max_wait=0.3).__aenter__()
            async with queues.held(0, "d"):
                assert await queues.cannot_start(0, "e")
        async with queues.held(0, "a", background=True):
            with pytest.raises(RateLimited):
                await queues.held(0, "b", background=True, max_wait=0.3).__aenter__()


async def test_the_background_has_half_of_the_memory(redis_server: RedisServer) -> None:
    """A large job in the background keeps smaller ones from passing it, but no requests."""
    async with Queues(redis_server, 2, slots=8, memory=10) as queues:
        async with queues.held(0, "a", memory=7, background=True):
            pass
        async with queues.held(0, "a", memory=4, background=True):
            large = asyncio.create_task(queues.held(1, "b", memory=2, background=True).__aenter__())
            await asyncio.sleep(0.1)
            small = asyncio.create_task(queues.held(1, "c", memory=1, background=True).__aenter__())
            await asyncio.sleep(0.1)
            async with queues.held(0, "d", memory=5):
                assert queues.started == ["a", "a", "d"]
        await asyncio.gather(large, small)
    assert queues.started == ["a", "a", "d", "b", "c"]


async def test_the_account_served_longest_ago_is_next_in_any_process(redis_server: RedisServer) -> None:
    """An account with many jobs in two processes gets no more than one with few jobs in a third."""
    async with Queues(redis_server, 3, slots=1) as queues:
        first = queues.held(0, "first")
        async with first:
            many = [asyncio.create_task(queues.work(number, "many")) for number in range(20)]
            await asyncio.sleep(0.1)
            few = [asyncio.create_task(queues.work(2, "few")) for _ in range(5)]
            await asyncio.sleep(0.1)
        await asyncio.gather(*many, *few)
    assert queues.started[1:11] == ["many", "few"] * 5


async def test_jobs_share_the_memory_and_a_large_one_does_not_starve(redis_server: RedisServer) -> None:
    async with Queues(redis_server, 2, slots=4, memory=10) as queues:
        async with queues.held(0, "a", memory=6):
            async with queues.held(1, "b", memory=4):
                assert await queues.cannot_start(0, "c", memory=1)
            large = asyncio.create_task(queues.work(1, "large", memory=11))
            await asyncio.sleep(0.1)
            small = asyncio.create_task(queues.work(0, "small", memory=1))
            await asyncio.sleep(0.1)
            assert queues.started == ["a", "b"]
        await asyncio.gather(large, small)
    assert queues.started == ["a", "b", "large", "small"]


async def test_accounts_whose_jobs_overrun_share_one_slot_of_all_processes(redis_server: RedisServer) -> None:
    async with Queues(redis_server, 2, slots=3) as queues:
        for number in (0, 1):
            for _ in range(3):
                with pytest.raises(OutOfMemory):
                    async with queues.held(number, "bad"):
                        raise OutOfMemory("It exceeds its memory.")
        async with queues.held(0, "bad"):
            assert await queues.cannot_start(1, "bad")
            async with queues.held(1, "good"):
                pass


async def test_one_slot_of_all_processes_is_kept_for_accounts_with_short_jobs(redis_server: RedisServer) -> None:
    async with Queues(redis_server, 2, slots=3) as queues:
        for number in range(2 * PROVING_JOBS):
            await queues.work(number, "proven", seconds=0)
        for _ in range(3):
            with pytest.raises(OutOfMemory):
                async with queues.held(0, "bad"):
                    raise OutOfMemory("It exceeds its memory.")
        async with queues.held(0, "bad"), queues.held(0, "new"):
            assert await queues.cannot_start(1, "another")
            async with queues.held(1, "proven"):
                pass


async def test_a_job_starts_at_once_when_another_process_leaves_it_the_slot(redis_server: RedisServer) -> None:
    """Before it would ask again."""
    async with Queues(redis_server, 2, slots=1, lease=600) as queues:
        await asyncio.to_thread(eventually, lambda: _listeners(redis_server) == 2)
        async with queues.held(0, "a"):
            waiting = asyncio.create_task(queues.work(1, "b"))
            await asyncio.sleep(0.2)
        await waiting


def _listeners(server: RedisServer) -> int:
    with Redis.from_url(server.url) as redis:
        return len(redis.pubsub_channels("convertd:queue:started:*"))


async def test_the_jobs_of_a_killed_process_end_with_their_lease(redis_server: RedisServer) -> None:
    pool = new_id("pool")
    command = (sys.executable, "-c", _HOLD, redis_server.url, pool)
    killed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert killed.stdout is not None
    assert await killed.stdout.readline() == b"runs\n"
    async with Queues(redis_server, 1, slots=1, pool=pool) as queues:
        assert await queues.cannot_start(0, "b")
        await asyncio.sleep(2 * _LEASE)  # it renews its job
        assert await queues.cannot_start(0, "b")
        killed.kill()
        await killed.wait()
        async with asyncio.timeout(10):
            await queues.work(0, "a", limit=1)


async def test_processes_use_their_shares_while_redis_is_gone(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        async with Queues(redis, 2, slots=4) as queues, AsyncExitStack() as before:
            await before.enter_async_context(queues.held(0, "a"))
            redis.kill()
            jobs = [asyncio.create_task(queues.work(number, "b", seconds=0.05)) for number in range(20)]
            await asyncio.gather(*jobs)
            assert queues.most["all"] == 4
            for number in (0, 1):  # one more than the limit
                await before.enter_async_context(queues.held(number, "b", limit=1))

            redis.start()
            await asyncio.sleep(2 * _LEASE)  # all processes have registered their jobs by then
            async with AsyncExitStack() as held, asyncio.timeout(10):
                while await _start_at_once(queues, held):
                    pass
                assert queues.running["all"] == 4


async def _start_at_once(queues: Queues, stack: AsyncExitStack) -> bool:
    """Starts jobs in the first process until one has to wait, with all slots of both processes in the end."""
    try:
        await stack.enter_async_context(queues.held(0, "b", max_wait=1))
    except RateLimited:
        return False
    return True


async def test_a_lost_redis_learns_the_jobs_again(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        async with Queues(redis, 2, slots=2) as queues:
            async with queues.held(0, "a"), queues.held(1, "b"):
                redis.restart()  # it has forgotten everything
                await asyncio.sleep(_LEASE)
                waiting = asyncio.create_task(queues.work(1, "c"))
                assert await queues.cannot_start(0, "d")
                assert queues.started == ["a", "b"]
            await waiting
