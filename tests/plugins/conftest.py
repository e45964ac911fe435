"""The executor of all tests that run jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pillow_heif.HeifImagePlugin  # noqa: F401, lets Pillow read the results
import pytest_asyncio

from engine.executor import LocalExecutor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Four workers."""
    made = LocalExecutor(4)
    await made.start()
    yield made
    await made.close()
