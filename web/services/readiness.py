"""Whether this process can do its work."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from engine.registry import Registry


class Readiness:
    """Ready from `begin` to `end`, as long as there is something to convert and a disk to do it on."""

    def __init__(self, registry: Registry, data_dir: Path) -> None:
        self._registry = registry
        self._data_dir = data_dir
        self._serving = False

    def begin(self) -> None:
        """The executor has started."""
        self._serving = True

    def end(self) -> None:
        """The server is about to stop."""
        self._serving = False

    async def reasons(self) -> list[str]:
        """What is wrong; nothing if the process is ready."""
        reasons = [] if self._serving else ["the executor is not running"]
        if not self._registry.formats:
            reasons.append("no plugin declares a format")
        if not await asyncio.to_thread(_writable, self._data_dir):
            reasons.append("the data folder cannot be written to")
        return reasons


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return file.write(b"ready") > 0
    except OSError:
        return False
