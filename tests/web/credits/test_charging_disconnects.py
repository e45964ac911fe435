"""Cancellation while a charge is being settled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.settings import Settings
from engine.executor import Job, JobLimits, JobResult, LocalExecutor
from engine.outcome import Outcome
from engine.registry import load_registry
from storage.database import Transaction
from storage.tables import accounts, api_keys
from tests.support.samples.generated import sample
from web.app import assemble
from web.services.charging import Charge, SaveResult
from web.services.conversion_request import ConversionRequest, Upload


class _Executor(LocalExecutor):
    """Writes nine bytes as the result of each job."""

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        return JobResult(Outcome(job.target, os.write(output, b"123456789")))


def _key(transaction: Transaction) -> str:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=2)
    return api_keys.issue(transaction, account.id, "Test").text


@pytest.mark.parametrize("saves", [True, False])
async def test_the_result_of_a_settled_charge_is_kept(
    tmp_path: Path, saves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is cancelled before its charge is committed, or after it."""
    settle = Charge.settle

    async def cancelled(charge: Charge, size: int, save: SaveResult | None = None) -> None:
        if saves:
            await settle(charge, size, save)
        raise asyncio.CancelledError

    monkeypatch.setattr(Charge, "settle", cancelled)
    services = assemble(Settings(data_dir=tmp_path / "data"), load_registry(), _Executor(1))
    account = await services.accounts.authenticate(f"Bearer {await services.database.run(_key)}")
    with services.work_files.create(account.id) as file, services.work_files.create(account.id) as output:
        await file.write(sample("png"))
        upload = Upload(file, "a.png", file.size, load_registry().formats["png"])
        request = ConversionRequest(account, "convert", (upload,), "png", store_result=True)
        with pytest.raises(asyncio.CancelledError):
            await services.conversions.convert(request, output)

    assert len(list((tmp_path / "data" / "blobs").iterdir())) == (1 if saves else 0)
    after = await services.database.run(accounts.get, account.id)
    assert (after.balance, after.held) == ((1, 0) if saves else (2, 0))
    await asyncio.to_thread(services.database.close)
