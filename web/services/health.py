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
from storage.blob_store import BlobStore, is_writable
from storage.database import Database
from storage.rate_limits import FailoverRateLimiter, RateLimiter
from web.metrics.service import InstallationMetrics

log = logging.getLogger("convertd.readiness")

_TIMEOUT = 1.5  # seconds for each check
_INTERVAL = 15  # seconds between looks for the metrics


@dataclass(frozen=True)
class HealthState:
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
        limiter: RateLimiter,
        data_dir: Path,
        database: Database,
        blobs: BlobStore,
        told: InstallationMetrics,
    ) -> None:
        self._registry = registry
        self._told = told
        self._serving = False
        self._vital = _Checks(
            {
                "the executor cannot run jobs": executor.ready,
                "the data folder cannot be written to": lambda: asyncio.to_thread(is_writable, data_dir),
                "files cannot be stored": blobs.ready,
                "the database does not answer": lambda: _answers(database),
            }
        )
        redis = isinstance(limiter, FailoverRateLimiter)
        self._others = _Checks({"Redis does not answer": lambda: _is_shared(limiter)} if redis else {})

    def begin(self) -> None:
        """The executor has started."""
        self._serving = True

    def end(self) -> None:
        """The server is about to stop."""
        self._serving = False
        self._vital.cancel()
        self._others.cancel()

    async def run(self) -> None:
        """Tells the metrics how things stand, and the log when that changes, until it is cancelled."""
        known: tuple[str, ...] = ()
        while True:
            reasons = (await self.state()).reasons
            self._told.ready(not reasons)
            if reasons and reasons != known:
                log.warning("not ready: %s", "; ".join(reasons))
            elif reasons != known:
                log.info("ready again")
            known = reasons
            await asyncio.sleep(_INTERVAL)

    async def state(self) -> HealthState:
        """How things stand."""
        if not self._serving:
            return HealthState(("the server does not serve",), ())
        reasons, degraded = await asyncio.gather(self._vital.failing(), self._others.failing())
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        broken = [f"the plugin {plugin.name} cannot be loaded" for plugin in self._registry.plugins if plugin.error]
        return HealthState(tuple(reasons), (*degraded, *broken))


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
            await asyncio.wait(asked.values(), timeout=_TIMEOUT)
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
    await database.run(accounts.any_exists)
    return True


async def _is_shared(limiter: RateLimiter) -> bool:
    await limiter.peek("readiness", 1, 1)
    return isinstance(limiter, FailoverRateLimiter) and not limiter.failing
