"""Conversions of local files by a server: the same tasks with the same outcomes as without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from engine import ConversionError, Options
from engine.executor import Done
from engine.pipeline import Warned
from web.client import AsyncClient, ConvertdError
from web.local import Outcome, Task

_AT_A_TIME = 2  # conversions, as many as the server runs side by side for anybody


async def convert(client: AsyncClient, wanted: Sequence[Task], options: Options) -> AsyncIterator[Outcome]:
    """The outcomes, as they come."""
    turns = asyncio.Semaphore(_AT_A_TIME)
    async with client:
        for outcome in asyncio.as_completed([_convert(client, turns, task, options) for task in wanted]):
            yield await outcome


async def _convert(client: AsyncClient, turns: asyncio.Semaphore, task: Task, options: Options) -> Outcome:
    async with turns:
        try:
            made = await client.convert(task.input, task.target.name, to=task.output, quality=options.quality)
        except ConvertdError as error:
            return Outcome(task, error=ConversionError(error.message, reason=error.reason))
    warnings = tuple(Warned(warned.code, warned.message) for warned in made.warnings)
    return Outcome(task, done=Done(made.processed_size, (), warnings), balance=made.credits_remaining)
