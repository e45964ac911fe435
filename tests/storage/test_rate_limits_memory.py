"""The rule of the limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.rate_limits import MemoryRateLimiter, unused


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now: float = 1_000_000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def test_so_many_in_a_window() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    verdicts = [await limiter.hit("a", 3, 60) for _ in range(5)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False, False]
    assert [verdict.remaining for verdict in verdicts] == [2, 1, 0, 0, 0]
    assert {verdict.reset_unix for verdict in verdicts} == {1_000_061}
    assert {verdict.retry_after for verdict in verdicts} == {60}


async def test_waiting_until_the_reset_succeeds() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    for _ in range(20):
        verdict = await limiter.hit("a", 3, 60)
    clock.now = float(verdict.reset_unix)
    assert (await limiter.hit("a", 3, 60)).remaining == 2


async def test_waiting_as_told_succeeds() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    await limiter.hit("a", 1, 60)
    clock.now += 59.7
    refused = await limiter.hit("a", 1, 60)
    assert (refused.allowed, refused.retry_after) == (False, 1)
    clock.now += refused.retry_after
    assert (await limiter.hit("a", 1, 60)).allowed


async def test_keys_and_windows_are_apart() -> None:
    limiter = MemoryRateLimiter(clock=Clock())
    await limiter.hit("a", 1, 60)
    assert (await limiter.hit("b", 1, 60)).allowed
    assert (await limiter.hit("a", 1, 3600)).allowed
    assert not (await limiter.hit("a", 1, 60)).allowed


async def test_a_look_counts_nothing() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    assert await limiter.peek("a", 2, 60) == unused(2, 60, clock.now)
    await limiter.hit("a", 2, 60)
    for _ in range(5):
        assert (await limiter.peek("a", 2, 60)).remaining == 1
    await limiter.hit("a", 2, 60)
    assert not (await limiter.peek("a", 2, 60)).allowed


async def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    await limiter.hit("a", 1, 60)
    clock.now -= 86_400
    assert (await limiter.hit("a", 1, 60)).allowed


async def test_memory_is_bounded() -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(capacity=10, clock=clock)
    for number in range(100):
        await limiter.hit(f"key-{number}", 1, 60)
    assert len(limiter._windows[60]) == 10
    assert not (await limiter.hit("key-99", 1, 60)).allowed
    clock.now += 61
    await limiter.hit("another", 1, 60)
    assert len(limiter._windows[60]) == 1


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5))
async def test_no_window_takes_more_than_the_limit(pauses: list[float], limit: int) -> None:
    clock = Clock()
    limiter = MemoryRateLimiter(clock=clock)
    allowed: list[float] = []
    for pause in pauses:
        clock.now += pause
        verdict = await limiter.hit("a", limit, 60)
        assert verdict.retry_after >= 1
        if verdict.allowed:
            allowed.append(clock.now)
            assert 0 <= verdict.remaining < limit
    # Two windows may touch, so any minute holds twice the limit at most.
    assert all(sum(at <= other < at + 60 for other in allowed) <= 2 * limit for at in allowed)
