"""What is true of limits wherever they are counted, by real clocks."""

from __future__ import annotations

import asyncio
import time

import pytest

from storage.rate_limits import RateLimiter

DAY = 86_400


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


async def test_so_many_in_a_window(limiter: RateLimiter) -> None:
    before = time.time()
    verdicts = [await limiter.hit("a", 3, 60) for _ in range(5)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False, False]
    assert [verdict.remaining for verdict in verdicts] == [2, 1, 0, 0, 0]
    assert {verdict.limit for verdict in verdicts} == {3}
    assert len({verdict.reset_unix for verdict in verdicts}) == 1
    assert before + 59 < verdicts[0].reset_unix < time.time() + 61
    assert all(50 < verdict.retry_after <= 60 for verdict in verdicts)


async def test_waiting_until_the_reset_succeeds(limiter: RateLimiter) -> None:
    for _ in range(20):
        verdict = await limiter.hit("a", 3, 1)
    assert not verdict.allowed
    await until(verdict.reset_unix)
    assert (await limiter.hit("a", 3, 1)).remaining == 2


async def test_waiting_as_told_succeeds(limiter: RateLimiter) -> None:
    await limiter.hit("a", 1, 2)
    refused = await limiter.hit("a", 1, 2)
    assert (refused.allowed, refused.retry_after) == (False, 2)
    await asyncio.sleep(refused.retry_after)
    assert (await limiter.hit("a", 1, 2)).allowed


async def test_the_first_request_opens_the_window(limiter: RateLimiter) -> None:
    await asyncio.sleep(0.6)
    first = await limiter.hit("a", 2, 1)
    await asyncio.sleep(0.6)
    second = await limiter.hit("a", 2, 1)
    assert (second.remaining, second.reset_unix) == (0, first.reset_unix)
    await asyncio.sleep(0.5)
    assert (await limiter.hit("a", 2, 1)).remaining == 1


async def test_keys_and_windows_are_apart(limiter: RateLimiter) -> None:
    await limiter.hit("a", 1, 60)
    assert (await limiter.hit("b", 1, 60)).allowed
    assert (await limiter.hit("a", 1, 3600)).allowed
    assert not (await limiter.hit("a", 1, 60)).allowed


async def test_a_look_counts_nothing(limiter: RateLimiter) -> None:
    untouched = await limiter.peek("a", 2, 60)
    assert (untouched.allowed, untouched.remaining, untouched.retry_after) == (True, 2, 60)
    await limiter.hit("a", 2, 60)
    for _ in range(5):
        assert (await limiter.peek("a", 2, 60)).remaining == 1
    await limiter.hit("a", 2, 60)
    spent = await limiter.peek("a", 2, 60)
    assert (spent.allowed, spent.remaining) == (False, 0)


@pytest.mark.parametrize(("limit", "window"), [(30, 60), (5, 3600), (50, DAY)])
async def test_limits_of_other_lengths(limiter: RateLimiter, limit: int, window: int) -> None:
    verdicts = [await limiter.hit("person@example.test", limit, window) for _ in range(limit + 1)]
    assert [verdict.allowed for verdict in verdicts] == [True] * limit + [False]
    assert window - 10 < verdicts[-1].retry_after <= window
    assert abs(verdicts[-1].reset_unix - time.time() - window) < 10


async def test_a_limit_that_changes_holds_at_once(limiter: RateLimiter) -> None:
    for _ in range(3):
        await limiter.hit("a", 5, 60)
    lowered = await limiter.hit("a", 2, 60)
    assert (lowered.allowed, lowered.remaining) == (False, 0)
    assert (await limiter.hit("a", 300, 60)).remaining == 296


async def test_requests_at_once_are_counted_one_by_one(limiter: RateLimiter) -> None:
    verdicts = await asyncio.gather(*(limiter.hit("a", 50, 60) for _ in range(200)))
    remaining = [verdict.remaining for verdict in verdicts if verdict.allowed]
    assert sorted(remaining) == list(range(50))
    assert {verdict.remaining for verdict in verdicts if not verdict.allowed} == {0}
