"""Turns: how many at a time, and how long to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from web.errors import RateLimited
from web.services.turns import Turns


@asynccontextmanager
async def held(turns: Turns, *accounts: str, limit: int = 2) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for account in accounts:
            await stack.enter_async_context(turns.taken(account, limit))
        yield


async def test_an_account_waits_for_itself_and_not_for_others() -> None:
    turns = Turns(10, patience=0.05)
    async with held(turns, "a", "a"):
        with pytest.raises(RateLimited) as refused:
            await held(turns, "a").__aenter__()
        assert (refused.value.reason, refused.value.headers["Retry-After"]) == ("queue_full", "5")
        async with held(turns, "b"):
            pass
    async with held(turns, "a", "a"):
        pass


async def test_all_wait_for_a_slot() -> None:
    turns = Turns(1, patience=5)
    order: list[str] = []

    async def work(account: str) -> None:
        async with held(turns, account):
            order.append(account)
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, "abc"))
    assert order == ["a", "b", "c"]


async def test_a_full_line_takes_nobody() -> None:
    turns = Turns(1, patience=5, capacity=1)
    async with held(turns, "a"):
        waiting = asyncio.create_task(held(turns, "b").__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await held(turns, "c").__aenter__()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with held(turns, "c"):
        pass


async def test_nothing_is_remembered_of_accounts_that_are_done() -> None:
    turns = Turns(1)
    for number in range(100):
        async with held(turns, f"account-{number}"):
            pass
    assert len(turns._accounts) <= 1
