"""Cancellation while a charge is being settled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from config.settings import Settings
from engine.executor import LocalExecutor
from engine.registry import load_registry
from storage.database import Transaction
from storage.tables import accounts, api_keys
from storage.tables.usage import UsageRecord
from tests.support.samples.generated import sample
from web.app import assemble
from web.services.charging import Charge, SaveResult
from web.services.conversion_request import ConversionRequest, ResultFile, Upload
from web.services.idempotency import ResponseData


class CancelledCharge(Charge):
    """A charge that is cancelled before or after it is committed."""

    saves = True

    async def settle(self, size: int, save: SaveResult | None = None) -> tuple[int, ResponseData | None]:
        if self.saves:
            await super().settle(size, save)
        raise asyncio.CancelledError


def _key(transaction: Transaction) -> str:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=2)
    return api_keys.issue(transaction, account.id, "Test").text


@pytest.mark.parametrize("saves", [True, False])
async def test_the_result_of_a_settled_charge_is_kept(tmp_path: Path, saves: bool) -> None:
    services = assemble(Settings(data_dir=tmp_path / "data"), load_registry(), LocalExecutor(1))
    account = await services.accounts.authenticate(f"Bearer {await services.database.run(_key)}")
    file = services.work_files.create(account.id)
    await file.write(sample("png"))
    plan = load_registry().plan([load_registry().formats["png"]], "png")
    result = ResultFile(file, "a.png", "image/png", size=9, seconds=0.1, warnings=())
    request = ConversionRequest(account, "convert", (Upload(file, "a.png", 9, plan.source),), "png", store_result=True)

    async def settle() -> None:
        async with services.charges.hold(
            account.id, account.key_id, 1, UsageRecord("convert", "png", "png", 9), None
        ) as charge:
            charge.__class__, CancelledCharge.saves = CancelledCharge, saves
            await services.conversions._settle(request, plan, result, charge)

    with pytest.raises(asyncio.CancelledError):
        await settle()

    assert len(list((tmp_path / "data" / "blobs").iterdir())) == (1 if saves else 0)
    after = await services.database.run(accounts.get, account.id)
    assert (after.balance, after.held) == ((1, 0) if saves else (2, 0))
    file.close()
    await asyncio.to_thread(services.database.close)
