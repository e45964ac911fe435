"""Rate limits in memory with a simulated clock: exact times and bounds. test_rate_limits has the common properties."""

from hypothesis import given
from hypothesis import strategies as st

from storage.rate_limits import MemoryRateLimiter, unused
from tests.support.samples.storage import Clock


async def test_times_are_rounded_up() -> None:
    clock = Clock(1_000_000.25)
    limiter = MemoryRateLimiter(clock=clock)
    status = await limiter.hit("a", 1, 60)
    assert (status.reset, status.retry_after) == (1_000_061, 60)
    clock.now += 59.7
    refused = await limiter.hit("a", 1, 60)
    assert (refused.allowed, refused.retry_after) == (False, 1)
    clock.now += refused.retry_after
    assert (await limiter.hit("a", 1, 60)).allowed


async def test_a_key_without_requests_is_unused() -> None:
    clock = Clock()
    assert await MemoryRateLimiter(clock=clock).peek("a", 2, 60) == unused(2, 60, clock.now)


async def test_a_clock_set_back_does_not_extend_a_window() -> None:
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
    assert len(limiter) == 10
    assert not (await limiter.hit("key-99", 1, 60)).allowed
    clock.now += 61
    await limiter.hit("another", 1, 60)
    assert len(limiter) == 1


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5))
async def test_no_window_exceeds_its_limit(pauses: list[float], limit: int) -> None:
    clock = Clock(0.0)
    limiter = MemoryRateLimiter(clock=clock)
    allowed: list[float] = []
    for pause in pauses:
        clock.now += pause
        status = await limiter.hit("a", limit, 60)
        assert status.retry_after >= 1
        if status.allowed:
            allowed.append(clock.now)
            assert 0 <= status.remaining < limit
    # Two windows may be adjacent, so any minute has at most twice the limit.
    assert all(sum(start <= other < start + 60 for other in allowed) <= 2 * limit for start in allowed)
