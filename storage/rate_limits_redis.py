"""Request limits that several processes share, counted by one script in Redis."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from storage.rate_limits import RateLimitStatus

T = TypeVar("T")
Answer = list[int] | Exception

_PREFIX = "convertd:limit:"
_PATIENCE = 0.1  # seconds
_WAITS = 10  # that share the patience

# KEYS[1]  a window: a hash of its `count` and its `end`
# ARGV[1]  the requests that are allowed
# ARGV[2]  the length of a window
# ARGV[3]  1 to count a request, 0 to look
# Returns whether a request is allowed (1 or 0), the count, the window's end, and the time now.
# All times are milliseconds by the clock of the Redis server, which all processes share.
_SCRIPT = """
local limit, length = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'count', 'end')
local count, ends = tonumber(found[1] or 0), tonumber(found[2] or 0)
-- An end too far away is one from before the clock was set back.
if ends <= now or ends > now + length then
    count, ends = 0, now + length
end
local allowed = count < limit and 1 or 0
if allowed == 1 and ARGV[3] == '1' then
    count = count + 1
    redis.call('HSET', KEYS[1], 'count', count, 'end', ends)
    redis.call('PEXPIREAT', KEYS[1], ends)
end
return {allowed, count, ends, now}
"""


@dataclass(frozen=True)
class _Question:
    key: str
    arguments: tuple[int, int, int]
    answer: asyncio.Future[list[int]]


class RedisRateLimiter:
    """The limits of all processes that use this Redis.

    Requests that come while Redis is being asked are asked about together, in the next round trip. Raises
    RedisError or OSError where Redis does not answer one within `patience` seconds.
    """

    def __init__(self, url: str, *, patience: float = _PATIENCE) -> None:
        self._patience = patience
        # Without time limits of its own, which a busy event loop would exceed although Redis is well.
        self._redis = Redis.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # connects in fewer round trips
        )
        self._script = self._redis.register_script(_SCRIPT)
        self._waiting: list[_Question] = []
        self._rounds: asyncio.Task[None] | None = None

    async def hit(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._ask(key, limit, window, hits=1)

    async def peek(self, key: str, limit: int, window: int) -> RateLimitStatus:
        return await self._ask(key, limit, window, hits=0)

    async def close(self) -> None:
        if self._rounds is not None:
            await self._rounds
        await self._redis.aclose()

    async def _ask(self, key: str, limit: int, window: int, *, hits: int) -> RateLimitStatus:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Question(f"{_PREFIX}{window}:{key}", (limit, window * 1000, hits), answer))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._ask_in_rounds())
        allowed, count, end, now = await answer
        left = max(1, math.ceil((end - now) / 1000))
        return RateLimitStatus(bool(allowed), limit, max(0, limit - count), math.ceil(end / 1000), left)

    async def _ask_in_rounds(self) -> None:
        while self._waiting:
            questions, self._waiting = self._waiting, []
            try:
                answers = await _patiently(self._answers(questions), self._patience)
            except Exception as error:
                # Nobody waits twice: those who came meanwhile are told the same.
                questions, self._waiting = questions + self._waiting, []
                answers = [error] * len(questions)
            for question, answer in zip(questions, answers, strict=True):
                _tell(question, answer)

    async def _answers(self, questions: list[_Question]) -> list[Answer]:
        answers = await self._round_trip(questions)
        if isinstance(answers[0], NoScriptError):
            await self._redis.script_load(_SCRIPT)
            answers = await self._round_trip(questions)
        return answers

    async def _round_trip(self, questions: list[_Question]) -> list[Answer]:
        pipeline = self._redis.pipeline(transaction=False)
        for question in questions:
            pipeline.evalsha(self._script.sha, 1, question.key, *question.arguments)
        return await pipeline.execute(raise_on_error=False)


def _tell(question: _Question, answer: Answer) -> None:
    if question.answer.done():
        return  # whoever asked has gone
    if isinstance(answer, Exception):
        question.answer.set_exception(answer)
    else:
        question.answer.set_result(answer)


async def _patiently(work: Awaitable[T], seconds: float) -> T:
    """The result of the work. Raises TimeoutError if it takes longer, but not because the event loop does.

    A loop that is late spends only one of the waits, and looks during the others at what has arrived.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(_WAITS):
            await asyncio.wait({task}, timeout=seconds / _WAITS)
            if task.done():
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()
