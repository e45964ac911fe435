"""Readiness of this process: essential checks, and checks whose failure only degrades the service."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

from engine.registry import Registry
from storage.blobs.blob_store import BlobStore, is_writable
from storage.database import Database, Transaction, unsynced
from storage.rate_limits import FailoverRateLimiter, RateLimiter
from storage.tables import accounts
from web.api.schemas.service import Cluster
from web.metrics.service import InstallationMetrics, ReadState
from web.services.conversions.file_executor import FileExecutor
from web.services.files.work_files import WorkFiles

log = logging.getLogger("convertd.health")

MAX_SECONDS = 5.0
"""A check that runs for longer has failed."""

_CHECK_WAIT = 0.5  # seconds for checks to end before a state is returned
_INTERVAL = 15  # seconds between updates of the metrics
_NO_EXECUTOR = "the executor cannot run jobs"
_WITHOUT_REDIS = "Redis does not respond"

Check: TypeAlias = Callable[[], Awaitable[bool]]


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

    A check fails if it returns False, raises or takes longer than MAX_SECONDS. While it runs, its previous result
    counts, because checks are slow on a busy machine. Checks run concurrently, and each at most once at a time.
    """

    def __init__(
        self,
        registry: Registry,
        executor: FileExecutor,
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
        self._checks: dict[str, Check] = {
            _NO_EXECUTOR: executor.ready,
            "the data folder cannot be written to": lambda: asyncio.to_thread(is_writable, work_files.folder),
            "the disk of the data folder is almost full": lambda: asyncio.to_thread(work_files.has_space),
            "files cannot be stored": blobs.ready,
            "the database does not respond": lambda: _database_responds(database),
        }
        if isinstance(limiter, FailoverRateLimiter):
            self._checks[_WITHOUT_REDIS] = lambda: _redis_responds(limiter)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._started: dict[str, float] = {}  # monotonic time
        self._succeeded = dict.fromkeys(self._checks, False)

    def start(self) -> None:
        """Makes the process ready if all essential checks succeed. The executor must have started."""
        self._serving = True

    def stop(self) -> None:
        """Makes the process unready and cancels running checks."""
        self._serving = False
        for check in self._running.values():
            check.cancel()

    async def run(self) -> None:
        """Updates the metrics, and logs each change, until cancelled."""
        previous: tuple[str, ...] = ()
        while True:
            reasons = (await self.state()).reasons
            self._metrics.ready.set(not reasons)
            self._metrics.set_plugins(self._registry.plugins)
            if reasons and reasons != previous:
                log.warning("not ready: %s", "; ".join(reasons))
            elif reasons != previous:
                log.info("ready again")
            previous = reasons
            await asyncio.sleep(_INTERVAL)

    async def state(self) -> HealthState:
        """Starts the checks that do not run, and waits up to half a second for them."""
        if not self._serving:
            return HealthState(("the server is starting or stopping",), ())
        failed = await self._failed_checks()
        cluster = None if self.cluster_state is None else self.cluster_state()
        reasons = [reason for reason in failed if reason != _WITHOUT_REDIS]
        if _NO_EXECUTOR in failed and cluster is not None:
            reasons[reasons.index(_NO_EXECUTOR)] = _missing_in(cluster)
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        degraded = [reason for reason in failed if reason == _WITHOUT_REDIS]
        if cluster is not None and cluster.unusable:
            degraded.append("the cluster has workers with another version or other plugins")
        degraded += [f"the plugin {plugin.name} does not work" for plugin in self._registry.plugins if plugin.error]
        return HealthState(tuple(reasons), tuple(degraded), cluster)

    async def _failed_checks(self) -> list[str]:
        """Returns the reasons to report for the checks that fail."""
        for reason in self._checks.keys() - self._running.keys():
            self._started[reason] = monotonic()
            self._running[reason] = asyncio.create_task(self._run_check(reason))
        await asyncio.wait([*self._running.values()], timeout=_CHECK_WAIT)
        return [reason for reason in self._checks if self._is_late(reason) or not self._succeeded[reason]]

    def _is_late(self, reason: str) -> bool:
        return reason in self._running and monotonic() - self._started[reason] > MAX_SECONDS

    async def _run_check(self, reason: str) -> None:
        succeeded = False
        try:
            succeeded = await self._checks[reason]()
        except Exception:
            log.warning("%s", reason, exc_info=True)
        finally:
            self._succeeded[reason] = succeeded
            del self._running[reason]


def _missing_in(cluster: Cluster) -> str:
    """Returns why jobs cannot run on the cluster."""
    if not cluster.connected:
        return "the scheduler of the cluster does not respond"
    return "the cluster has no worker with the version and the plugins of this server"


async def _database_responds(database: Database) -> bool:
    return await database.run(_begin_write)


@unsynced
def _begin_write(transaction: Transaction) -> bool:
    accounts.any_exists(transaction)
    return True


async def _redis_responds(limiter: FailoverRateLimiter) -> bool:
    await limiter.peek("readiness", 1, 1)
    return not limiter.failing
