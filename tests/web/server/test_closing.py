"""The end of background work: what fails is logged, and what takes long is cancelled."""

import asyncio

import pytest

from web.services.operation.closing import complete


async def test_failures_are_logged_and_late_work_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("lost")

    completed, late = asyncio.ensure_future(asyncio.sleep(0, "done")), asyncio.ensure_future(asyncio.sleep(60))
    await complete(completed, fail(), late, seconds=0.1)
    await asyncio.wait([late])
    assert (completed.result(), late.cancelled()) == ("done", True)
    (record,) = caplog.records
    assert record.exc_info
    assert str(record.exc_info[1]) == "lost"
