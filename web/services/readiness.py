"""Whether this process can do its work, and what it does without."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.executor import Executor
from engine.registry import Registry
from storage import accounts
from storage.blobs import Blobs, writable
from storage.database import Database
from storage.failover import FailoverLimiter
from storage.limits import Limiter

log = logging.getLogger("convertd.readiness")

_PATIENCE = 1.5  # seconds for each check


@dataclass(frozen=True)
class State:
    """What keeps the process from its work, and what it does without: limits that hold for all servers, plugins."""

    reasons: tuple[str, ...]
    degraded: tuple[str, ...]


class Readiness:
    """Ready from `begin` to `end`, while all that conversions cannot do without answers in time.

    Checks run side by side. One that hangs is waited for by whoever asks next: there is never a second of its kind.
    """

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        limiter: Limiter,
        data_dir: Path,
        database: Database,
        blobs: Blobs,
    ) -> None:
        self._registry = registry
        self._serving = False
        self._vital = _Checks(
            {
                "the executor cannot run jobs": executor.ready,
                "the data folder cannot be written to": lambda: asyncio.to_thread(writable, data_dir),
                "files cannot be stored": blobs.ready,
                "the database does not answer": lambda: _answers(database),
            }
        )
        redis = isinstance(limiter, FailoverLimiter)
        self._others = _Checks({"Redis does not answer": lambda: _is_shared(limiter)} if redis else {})

    def begin(self) -> None:
        """The executor has started."""
        self._serving = True

    def end(self) -> None:
        """The server is about to stop."""
        self._serving = False
        self._vital.cancel()
        self._others.cancel()

    async def state(self) -> State:
        """How things stand."""
        if not self._serving:
            return State(("the server does not serve",), ())
        reasons, degraded = await asyncio.gather(self._vital.failing(), self._others.failing())
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        broken = [f"the plugin {plugin.name} cannot be loaded" for plugin in self._registry.plugins if plugin.error]
        return State(tuple(reasons), (*degraded, *broken))


class _Checks:
    """Questions by what it means that they are answered with no, or too late, or not at all."""

    def __init__(self, checks: Mapping[str, Callable[[], Awaitable[bool]]]) -> None:
        self._checks = checks
        self._asked: dict[str, asyncio.Task[bool]] = {}

    async def failing(self) -> list[str]:
        for reason, check in self._checks.items():
            if reason not in self._asked:
                task = self._asked[reason] = asyncio.create_task(_held(reason, check))
                task.add_done_callback(partial(self._forget, reason))
        asked = dict(self._asked)
        if asked:
            await asyncio.wait(asked.values(), timeout=_PATIENCE)
        return [reason for reason, task in asked.items() if not task.done() or task.cancelled() or not task.result()]

    def _forget(self, reason: str, _task: asyncio.Task[bool]) -> None:
        del self._asked[reason]

    def cancel(self) -> None:
        for task in self._asked.values():
            task.cancel()


async def _held(reason: str, check: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await check()
    except Exception:
        log.warning("%s", reason, exc_info=True)
        return False


async def _answers(database: Database) -> bool:
    await database.run(accounts.exist)
    return True


async def _is_shared(limiter: Limiter) -> bool:
    await limiter.peek("readiness", 1, 1)
    return isinstance(limiter, FailoverLimiter) and not limiter.failing
