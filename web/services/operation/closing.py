"""The end of background work, which must not delay the end of the process for long."""

import asyncio
import logging
from collections.abc import Awaitable

log = logging.getLogger("convertd.server")


CLOSE_TIMEOUT = 3.0
"""Seconds for each step of the end of a process."""


async def complete(*work: Awaitable[object], seconds: float = CLOSE_TIMEOUT) -> None:
    """Waits for all work together. Cancels what is not done after some seconds, and logs what fails."""
    tasks = [asyncio.ensure_future(one) for one in work]
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        if task in late:
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the server was not closed", exc_info=error)
