"""Executors whose processes load the misbehaving plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine import sandbox
from engine.executor import LocalExecutor

MISBEHAVING = Path(__file__).parent / "misbehaving"
"""The folder of the misbehaving plugin."""

ACCOUNT = "account"


@asynccontextmanager
async def misbehaving(
    workers: int, layers: Collection[str] = sandbox.LAYERS, jobs_per_process: int = 100
) -> AsyncIterator[LocalExecutor]:
    """An executor whose fork server has started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MISBEHAVING)
        executor = LocalExecutor(workers, layers, jobs_per_process)
        await executor.start()
        try:
            yield executor
        finally:
            await executor.close()
