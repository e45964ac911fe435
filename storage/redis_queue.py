"""The queue that server processes share: a Lua script in Redis decides which of their jobs starts next.

The rules are as in the queue of one process: a tenant runs at most a number of jobs, on all servers together, and the
tenant that was served longest ago is next. Slots and memory belong to a pool, which is a machine or a cluster. A
process registers its jobs in Redis and renews them while it lives: the jobs of a killed process end with their lease.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

log = logging.getLogger("convertd.queue")

_PREFIX = "convertd:queue:"
LEASE = 5.0
"""Seconds without a renewal after which a process counts as ended."""

_RENEWALS = 5  # per lease
_TIMEOUT = 1.0  # seconds
_UNUSED = 600  # seconds after which keys of tenants and pools without jobs are deleted

# KEYS[1]  the jobs of the calling process by id, as JSON; a process is alive as long as it has this key
# KEYS[2]  the running jobs of the pool, as "process id"
# KEYS[3]  the lines with waiting jobs in the pool, by the time of their latest service
# KEYS[4]  the beginning of the keys of the waiting jobs of the pool by line
# ARGV[1]  the calling process
# ARGV[2]  memory of the pool in bytes
# ARGV[3]  slots of the pool for jobs of each standing and those below it, lowest standing first, as JSON
# ARGV[4]  jobs that are new or have ended, as JSON
# ARGV[5]  1 if the jobs are all that the process has
# ARGV[6]  milliseconds of a lease
# ARGV[7]  seconds after which unused keys are deleted
# ARGV[8]  slots of the pool for jobs in the background
# Returns the ids of the jobs of the calling process that have started. Other processes receive a message.
_SCRIPT = """
local prefix = 'convertd:queue:'
local process, memory, slots = ARGV[1], tonumber(ARGV[2]), cjson.decode(ARGV[3])
local pool, turns = KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local started = {}
local background_slots = tonumber(ARGV[8])

local function running(tenant) return prefix .. 'running:' .. tenant end
local function waiting(line) return KEYS[4] .. line end

-- The line in which a job waits: a tenant has one for its jobs in the background, too.
local function line_of(job) return job.background and job.tenant .. ' background' or job.tenant end

-- The job that a text names, with its process; nil if the job or its process has ended.
local function find(name)
    local owner, id = string.match(name, '^(%S+) (%S+)$')
    local text = redis.call('HGET', prefix .. 'process:' .. owner, id)
    if text then
        return cjson.decode(text), owner
    end
end

-- The jobs in a set. Forgets those that have ended.
local function jobs_in(set)
    local jobs = {}
    for _, name in ipairs(redis.call('SMEMBERS', set)) do
        local job = find(name)
        if job then
            table.insert(jobs, job)
        else
            redis.call('SREM', set, name)
        end
    end
    return jobs
end

-- The first waiting job of a line. Forgets those before it, which have ended.
local function first(line)
    local name = redis.call('LINDEX', waiting(line), 0)
    while name do
        local job, owner = find(name)
        if job then
            return name, job, owner
        end
        redis.call('LPOP', waiting(line))
        name = redis.call('LINDEX', waiting(line), 0)
    end
end

local function serve(line)
    now = now + 1
    redis.call('ZADD', turns, 'XX', now, line)
end

local function run(name, tenant)
    for _, set in ipairs({pool, running(tenant)}) do
        redis.call('SADD', set, name)
        redis.call('EXPIRE', set, ARGV[7])
    end
end

local function add(name, job)
    redis.call('HSET', KEYS[1], job.id, cjson.encode(job))
    if job.running then
        run(name, job.tenant)
    elseif redis.call('SISMEMBER', pool, name) == 1 then
        table.insert(started, job.id)  -- the message about its start was lost
    elseif not redis.call('LPOS', waiting(line_of(job)), name) then
        redis.call('RPUSH', waiting(line_of(job)), name)
        redis.call('EXPIRE', waiting(line_of(job)), ARGV[7])
        redis.call('ZADD', turns, 'NX', now, line_of(job))
        redis.call('EXPIRE', turns, ARGV[7])
    end
end

local function remove(name, job)
    redis.call('HDEL', KEYS[1], job.id)
    redis.call('SREM', pool, name)
    redis.call('SREM', running(job.tenant), name)
    serve(line_of(job))
end

-- Whether a job has a slot: the jobs of each standing have their slots and those of lower ones. Jobs in the background
-- have slots of their own; those that run beyond these are not in the way of others.
local function has_slot(job, jobs)
    local background, restricted = 0, 0
    for _, other in ipairs(jobs) do
        background = background + (other.background and 1 or 0)
        restricted = restricted + (other.standing == 0 and 1 or 0)
    end
    if job.standing == 0 and restricted >= slots[1] then
        return false
    elseif job.background then
        return background < background_slots and #jobs < slots[#slots]
    end
    for standing = job.standing, #slots - 1 do
        local count = 0
        for _, other in ipairs(jobs) do
            if other.standing <= standing and not other.background then
                count = count + 1
            end
        end
        if count >= slots[standing + 1] then
            return false
        end
    end
    return #jobs - math.max(background - background_slots, 0) < slots[#slots]
end

-- Jobs of a higher rank start before others: requests, then the background, then the lowest standing.
local function rank(job)
    return job.standing == 0 and 0 or job.background and 1 or 2
end

-- The memory that jobs use, and how many there are: all, or those in the background.
local function sum(jobs, background)
    local used, count = 0, 0
    for _, job in ipairs(jobs) do
        if job.background or not background then
            used, count = used + job.memory, count + 1
        end
    end
    return used, count
end

-- Whether a job fits into the half of the memory that those in the background have. One of them may need more.
local function has_background_memory(job, jobs)
    local used, count = sum(jobs, true)
    return count == 0 or used + job.memory <= memory / 2
end

-- Starts the next job. Returns whether there was one. A job that waits for memory keeps others from starting, one in
-- the background only those in the background.
local function start_next()
    local jobs, full = jobs_in(pool), false
    local used = sum(jobs, false)
    for allowed = 2, 0, -1 do
        for _, line in ipairs(redis.call('ZRANGE', turns, 0, -1)) do
            local name, job, owner = first(line)
            if not name then
                redis.call('ZREM', turns, line)
            elseif rank(job) == allowed and has_slot(job, jobs)
                and #jobs_in(running(job.tenant)) < job.max_jobs then
                full = full or job.background and not has_background_memory(job, jobs)
                if not (job.background and full) then
                    if #jobs > 0 and used + job.memory > memory then
                        return false
                    end
                    redis.call('LPOP', waiting(line))
                    run(name, job.tenant)
                    serve(line)
                    if owner == process then
                        table.insert(started, job.id)
                    else
                        redis.call('PUBLISH', prefix .. 'started:' .. owner, job.id)
                    end
                    return true
                end
            end
        end
    end
    return false
end

if ARGV[5] == '1' then
    redis.call('DEL', KEYS[1])
end
for _, job in ipairs(cjson.decode(ARGV[4])) do
    local name = process .. ' ' .. job.id
    if job.ended then remove(name, job) else add(name, job) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
while start_next() do end
return started
"""


@dataclass(frozen=True)
class SharedJob:
    """A job of a tenant that runs at most `max_jobs` at a time, with its memory in bytes.

    `standing` is an index of the slots of the pool, which are counted for each standing and those below it. Jobs in the
    `background` have slots of their own.
    """

    tenant: str
    max_jobs: int
    memory: int
    standing: int
    background: bool = False


@dataclass(frozen=True)
class Pool:
    """The resources that jobs of a machine or a cluster share: slots by standing, lowest first, and memory in bytes.

    Jobs in the background use at most `background` slots.
    """

    slots: Sequence[int]
    memory: float
    background: int


class RedisQueue:
    """Starts jobs of this process in the order that the processes share.

    `pool_name` and `process` are unique texts without spaces. `pool` returns the current limits, `on_start` is called
    with the id of a job that has started, and `on_failure` when Redis fails: until `failing` is false again, the caller
    decides which jobs start, and calls `set_running`. `lease` is in seconds.
    """

    def __init__(
        self,
        url: str,
        pool_name: str,
        process: str,
        pool: Callable[[], Pool],
        on_start: Callable[[str], None],
        on_failure: Callable[[], None],
        lease: float = LEASE,
    ) -> None:
        self.failing = False
        self._lease = lease
        self._renewal = lease / _RENEWALS
        self._redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2, decode_responses=True)
        self._script = self._redis.register_script(_SCRIPT)
        names = (f"process:{process}", f"pool:{pool_name}", f"turns:{pool_name}", f"waiting:{pool_name}:")
        self._keys = [_PREFIX + name for name in names]
        self._process = process
        self._pool = pool
        self._on_start = on_start
        self._on_failure = on_failure
        self._jobs: dict[str, dict[str, Any]] = {}  # as the script receives them, by id
        self._changes: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._renewed_at = 0.0  # monotonic time

    def add(self, id: str, job: SharedJob) -> None:
        """Queues a job. `on_start` is called when it may run."""
        self._jobs[id] = {"id": id, **vars(job), "running": False}
        self._change(self._jobs[id])

    def set_running(self, id: str) -> None:
        """Records that a job runs, which has started here or while Redis failed."""
        self._jobs[id]["running"] = True

    def remove(self, id: str) -> None:
        """Ends a job, whether it waits or runs."""
        self._change({**self._jobs.pop(id), "ended": True})

    async def run(self) -> None:
        """Exchanges changes with Redis until cancelled."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._renewal):
                        await self._changed.wait()
                self._changed.clear()
                if self._jobs or self._changes or self.failing:
                    # The client of Redis ignores some cancellations.
                    await asyncio.shield(self._exchange())
        finally:
            listening.cancel()

    async def close(self) -> None:
        """Ends all jobs of this process, and closes connections."""
        with suppress(Exception):
            async with asyncio.timeout(_TIMEOUT):
                await self._redis.delete(self._keys[0])
        await self._redis.aclose()

    def _change(self, job: dict[str, Any]) -> None:
        if not self.failing:  # else, all jobs are sent at the next attempt
            self._changes.append(job)
            self._changed.set()

    async def _exchange(self) -> None:
        """Sends the changes, or from time to time all jobs, and starts those that may run."""
        complete = self.failing or monotonic() - self._renewed_at >= self._renewal
        jobs, self._changes = list(self._jobs.values()) if complete else self._changes, []
        pool = self._pool()
        limits = (pool.memory, json.dumps(list(pool.slots)))
        sent = json.dumps(jobs), int(complete), round(self._lease * 1000), _UNUSED
        arguments = (self._process, *limits, *sent, pool.background)
        try:
            async with asyncio.timeout(_TIMEOUT):
                started = await self._script(keys=self._keys, args=arguments)
        except Exception as error:  # a job must not fail because its turn cannot be found out
            if not self.failing:
                reason = f"{type(error).__name__} {error}".strip()
                log.warning("Redis unavailable, processes run jobs by their shares of the limits: %s", reason)
            self.failing = True
            self._renewed_at = 0.0
            self._on_failure()
            return
        self._renewed_at = monotonic() if complete else self._renewed_at
        self.failing = False
        for id in started:
            self._on_start(id)

    async def _listen(self) -> None:
        """Receives the messages that jobs have started. While Redis fails, jobs are found by `_exchange`."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as messages:
                    await messages.subscribe(f"{_PREFIX}started:{self._process}")
                    async for message in messages.listen():
                        self._on_start(message["data"])
            except Exception as error:
                log.debug("no messages from Redis: %s", error)
            await asyncio.sleep(self._renewal)
