"""Conversions of local files by a server: the same tasks with the same outcomes as without one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from engine import ConversionError, Options
from engine.executor import Done
from engine.pipeline import Warned
from web.client import AsyncClient, ConvertdError
from web.local import Outcome, Task, WrongUsage

_AT_A_TIME = 2  # conversions, as many as the server runs side by side for anybody


def client(server: str) -> AsyncClient:
    """A client with the key of the environment. Raises ValueError where there is none, or the URL is none."""
    if not os.environ.get("CONVERTD_API_KEY"):
        raise WrongUsage("set CONVERTD_API_KEY to your key for the server.")
    return AsyncClient(server)


async def convert(client: AsyncClient, wanted: Sequence[Task], options: Options) -> AsyncIterator[Outcome]:
    """The outcomes, as they come."""
    turns = asyncio.Semaphore(_AT_A_TIME)
    async with client:
        converted = False
        coming = asyncio.as_completed([_convert(client, turns, task, options) for task in wanted])
        for left, outcome in zip(range(len(wanted) - 1, -1, -1), coming, strict=True):
            done = await outcome
            converted |= done.error is None
            yield done if left or not converted else replace(done, balance=await _balance(client))


async def _balance(client: AsyncClient) -> int | None:
    """The credits that are left when all is over: before, some are held for what may yet fail."""
    try:
        return (await client.account()).credits_remaining
    except ConvertdError:
        return None


async def _convert(client: AsyncClient, turns: asyncio.Semaphore, task: Task, options: Options) -> Outcome:
    async with turns:
        try:
            made = await client.convert(task.input, task.target.name, to=task.output, quality=options.quality)
        except ConvertdError as error:
            return Outcome(task, error=ConversionError(error.message, reason=error.reason))
    warnings = tuple(Warned(warned.code, warned.message) for warned in made.warnings)
    return Outcome(task, done=Done(made.processed_size, (), warnings))
