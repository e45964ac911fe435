"""Whether this process can do its work."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from engine.registry import Registry
from storage import accounts
from storage.blobs import Blobs, writable
from storage.database import Database
from web.metrics.installation import InstallationMetrics

log = logging.getLogger("convertd.readiness")

_PATIENCE = 5.0  # seconds
_PAUSE = 15  # seconds


class Readiness:
    """Ready from `begin` to `end`, as long as there is something to convert and a disk to do it on."""

    def __init__(
        self, registry: Registry, data_dir: Path, database: Database, blobs: Blobs, told: InstallationMetrics
    ) -> None:
        self._registry = registry
        self._data_dir = data_dir
        self._database = database
        self._blobs = blobs
        self._told = told
        self._serving = False

    def begin(self) -> None:
        """The executor has started."""
        self._serving = True

    def end(self) -> None:
        """The server is about to stop."""
        self._serving = False

    async def run(self) -> None:
        """Tells the metrics, and the log when it changes, until it is cancelled."""
        known: list[str] = []
        while True:
            reasons = await self.reasons()
            self._told.ready(not reasons)
            if reasons != known:
                log.warning("not ready: %s", "; ".join(reasons)) if reasons else log.info("ready again")
            known = reasons
            await asyncio.sleep(_PAUSE)

    async def reasons(self) -> list[str]:
        """What is wrong; nothing if the process is ready."""
        reasons = [] if self._serving else ["the executor is not running"]
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        if not await asyncio.to_thread(writable, self._data_dir):
            reasons.append("the data folder cannot be written to")
        if not await self._blobs.ready():
            reasons.append("files cannot be stored")
        if not await self._answers():
            reasons.append("the database does not answer")
        return reasons

    async def _answers(self) -> bool:
        try:
            await asyncio.wait_for(self._database.run(accounts.exist), _PATIENCE)
        except Exception:
            log.warning("the database does not answer", exc_info=True)
            return False
        return True
