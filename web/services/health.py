"""Readiness of this process: essential checks, and checks whose failure only degrades the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from engine.executor import Executor
from engine.registry import Registry
from storage.blobs.blob_store import BlobStore, is_writable
from storage.database import Database
from storage.rate_limits import FailoverRateLimiter, RateLimiter
from storage.tables import accounts
from web.api.schemas.service import Cluster
from web.metrics.cluster import ReadState
from web.metrics.service import InstallationMetrics
from web.services.work_files import WorkFiles

log = logging.getLogger("convertd.health")

_CHECK_TIMEOUT = 1.5  # seconds
_INTERVAL = 15  # seconds between updates of the metrics


@dataclass(frozen=True)
class HealthState:
    """`reasons` make the process unready. `degraded` lists failures that the service tolerates, such as Redis.

    `cluster` is the state of the cluster if conversions run on one.
    """

    reasons: tuple[str, ...]
    degraded: tuple[str, ...]
    cluster: Cluster | None = None


class Readiness:
    """The process is ready from `start` to `stop`, while all essential checks succeed in time.

    Checks run concurrently. Concurrent callers share a running check, so that each check runs at most once at a time.
    """

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        limiter: RateLimiter,
        work_files: WorkFiles,
        database: Database,
        blobs: BlobStore,
        metrics: InstallationMetrics,
        cluster_state: ReadState | None = None,
    ) -> None:
        self.cluster_state = cluster_state
        self._registry = registry
        self._metrics = metrics
        self._serving = False
        self._essential = _Checks(
            {
                **_executor_checks(executor, cluster_state),
                "the data folder cannot be written to": lambda: asyncio.to_thread(is_writable, work_files.folder),
                "the disk of the data folder is almost full": lambda: asyncio.to_thread(work_files.has_space),
                "files cannot be stored": blobs.ready,
                "the database does not respond": lambda: _database_responds(database),
            }
        )
        redis = isinstance(limiter, FailoverRateLimiter)
        self._optional = _Checks({"Redis does not respond": lambda: _redis_responds(limiter)} if redis else {})

    def start(self) -> None:
        """Makes the process ready if all essential checks succeed. The executor must have started."""
        self._serving = True

    def stop(self) -> None:
        """Makes the process unready and cancels running checks."""
        self._serving = False
        self._essential.cancel()
        self._optional.cancel()

    async def run(self) -> None:
        """Updates the metrics, and logs each change, until cancelled."""
        previous: tuple[str, ...] = ()
        while True:
            reasons = (await self.state()).reasons
            self._metrics.ready.set(not reasons)
            if reasons and reasons != previous:
                log.warning("not ready: %s", "; ".join(reasons))
            elif reasons != previous:
                log.info("ready again")
            previous = reasons
            await asyncio.sleep(_INTERVAL)

    async def state(self) -> HealthState:
        """Runs all checks."""
        if not self._serving:
            return HealthState(("the server is starting or stopping",), ())
        reasons, degraded = await asyncio.gather(self._essential.failing(), self._optional.failing())
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        broken = [f"the plugin {plugin.name} cannot be loaded" for plugin in self._registry.plugins if plugin.error]
        cluster = None if self.cluster_state is None else self.cluster_state()
        if cluster is not None and cluster.unusable:
            degraded.append("the cluster has workers with another version, other plugins or another blob store")
        return HealthState(tuple(reasons), (*degraded, *broken), cluster)


class _Checks:
    """Checks, by the reason to report when they fail. A check fails if it returns False, raises or times out."""

    def __init__(self, checks: Mapping[str, Callable[[], Awaitable[bool]]]) -> None:
        self._checks = checks
        self._running: dict[str, asyncio.Task[bool]] = {}

    async def failing(self) -> list[str]:
        for reason, check in self._checks.items():
            if reason not in self._running:
                task = self._running[reason] = asyncio.create_task(_succeeds(reason, check))
                task.add_done_callback(partial(self._remove, reason))
        running = dict(self._running)
        if running:
            await asyncio.wait(running.values(), timeout=_CHECK_TIMEOUT)
        return [reason for reason, task in running.items() if not task.done() or task.cancelled() or not task.result()]

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    def _remove(self, reason: str, _task: asyncio.Task[bool]) -> None:
        del self._running[reason]


def _executor_checks(executor: Executor, cluster_state: ReadState | None) -> dict[str, Callable[[], Awaitable[bool]]]:
    """Returns the checks of the executor. If the scheduler of a cluster does not respond, only that check fails."""
    if cluster_state is None:
        return {"the executor cannot run jobs": executor.ready}

    async def connected() -> bool:
        return cluster_state().connected

    async def has_worker() -> bool:
        return not cluster_state().connected or await executor.ready()

    return {
        "the scheduler of the cluster does not respond": connected,
        "the cluster has no worker with the version, the plugins and the blob store of this server": has_worker,
    }


async def _succeeds(reason: str, check: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await check()
    except Exception:
        log.warning("%s", reason, exc_info=True)
        return False


async def _database_responds(database: Database) -> bool:
    await database.run(accounts.any_exists)
    return True


async def _redis_responds(limiter: RateLimiter) -> bool:
    await limiter.peek("readiness", 1, 1)
    return isinstance(limiter, FailoverRateLimiter) and not limiter.failing
