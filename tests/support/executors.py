"""Executors whose processes load the misbehaving plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.executor import LocalExecutor

MISBEHAVING = Path(__file__).parent / "misbehaving"
"""The folder of the misbehaving plugin."""


@asynccontextmanager
async def misbehaving(workers: int) -> AsyncIterator[LocalExecutor]:
    """An executor with this number of workers and both fork servers started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MISBEHAVING)
        executor = LocalExecutor(workers)
        await executor.start()
        try:
            yield executor
        finally:
            await executor.close()
