"""Rate limits: properties of all implementations, with real clocks."""

import asyncio
import time

import pytest

from storage.rate_limits import RateLimiter

DAY = 86_400


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


async def test_the_limit_of_a_window(limiter: RateLimiter) -> None:
    before = time.time()
    statuses = [await limiter.hit("a", 3, 60) for _ in range(5)]
    assert [status.allowed for status in statuses] == [True, True, True, False, False]
    assert [status.remaining for status in statuses] == [2, 1, 0, 0, 0]
    assert {status.limit for status in statuses} == {3}
    assert len({status.reset for status in statuses}) == 1
    assert before + 59 < statuses[0].reset < time.time() + 61
    assert all(50 < status.retry_after <= 60 for status in statuses)


async def test_requests_after_the_reset_are_allowed(limiter: RateLimiter) -> None:
    for _ in range(20):
        status = await limiter.hit("a", 3, 1)
    assert not status.allowed
    await until(status.reset)
    assert (await limiter.hit("a", 3, 1)).remaining == 2


async def test_the_first_request_starts_the_window(limiter: RateLimiter) -> None:
    await asyncio.sleep(1.2)
    first = await limiter.hit("a", 2, 2)
    await asyncio.sleep(1.2)
    second = await limiter.hit("a", 2, 2)
    assert (second.remaining, second.reset) == (0, first.reset)
    await until(first.reset)
    assert (await limiter.hit("a", 2, 2)).remaining == 1


async def test_keys_and_window_lengths_are_separate(limiter: RateLimiter) -> None:
    await limiter.hit("a", 1, 60)
    assert (await limiter.hit("b", 1, 60)).allowed
    assert (await limiter.hit("a", 1, 3600)).allowed
    assert not (await limiter.hit("a", 1, 60)).allowed


async def test_peek_does_not_count(limiter: RateLimiter) -> None:
    untouched = await limiter.peek("a", 2, 60)
    assert (untouched.allowed, untouched.remaining, untouched.retry_after) == (True, 2, 60)
    await limiter.hit("a", 2, 60)
    for _ in range(5):
        assert (await limiter.peek("a", 2, 60)).remaining == 1
    await limiter.hit("a", 2, 60)
    spent = await limiter.peek("a", 2, 60)
    assert (spent.allowed, spent.remaining) == (False, 0)


@pytest.mark.parametrize(("limit", "window"), [(30, 60), (5, 3600), (50, DAY)])
async def test_other_limits_and_windows(limiter: RateLimiter, limit: int, window: int) -> None:
    statuses = [await limiter.hit("person@example.test", limit, window) for _ in range(limit + 1)]
    assert [status.allowed for status in statuses] == [True] * limit + [False]
    assert window - 10 < statuses[-1].retry_after <= window
    assert abs(statuses[-1].reset - time.time() - window) < 10


async def test_a_changed_limit_applies_immediately(limiter: RateLimiter) -> None:
    for _ in range(3):
        await limiter.hit("a", 5, 60)
    lowered = await limiter.hit("a", 2, 60)
    assert (lowered.allowed, lowered.remaining) == (False, 0)
    assert (await limiter.hit("a", 300, 60)).remaining == 296


async def test_concurrent_requests_are_counted(limiter: RateLimiter) -> None:
    statuses = await asyncio.gather(*(limiter.hit("a", 50, 60) for _ in range(200)))
    remaining = [status.remaining for status in statuses if status.allowed]
    assert sorted(remaining) == list(range(50))
    assert {status.remaining for status in statuses if not status.allowed} == {0}
