"""Cancellation while a charge is being settled."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.settings import Settings
from engine.registry import load_registry
from storage.database import Transaction
from storage.tables import accounts, api_keys
from tests.support.executors.isolated import ObservedExecutor
from tests.support.samples.generated import sample
from web.app import assemble
from web.services.conversions import charging
from web.services.conversions.charging import Charge, SaveResult
from web.services.conversions.conversion_request import ConversionRequest, Upload
from web.services.conversions.idempotency import ResponseData


class CancelledCharge(Charge):
    """A charge that is cancelled before or after it is committed."""

    saves = True

    async def settle(
        self, made: Sequence[tuple[str, int]], save: SaveResult | None = None, *, alone: bool = False
    ) -> tuple[int, ResponseData | None]:
        if self.saves:
            await super().settle(made, save, alone=alone)
        raise asyncio.CancelledError


def _key(transaction: Transaction) -> str:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=2)
    return api_keys.issue(transaction, account.id, "Test").text


@pytest.mark.parametrize("saves", [True, False])
async def test_the_result_of_a_settled_charge_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool
) -> None:
    monkeypatch.setattr(CancelledCharge, "saves", saves)
    monkeypatch.setattr(charging, "Charge", CancelledCharge)
    executor = ObservedExecutor(1)
    services = assemble(Settings(data_dir=tmp_path / "data"), load_registry(), executor)
    account = await services.accounts.authenticate(f"Bearer {await services.database.run(_key)}")
    file = services.work_files.create(account.id)
    await file.write(sample("png"))
    upload = Upload(file, "a.png", file.size, load_registry().formats["png"])
    request = ConversionRequest(account=account, uploads=(upload,), target="png", store_result=True)

    with services.work_files.create(account.id) as output, pytest.raises(asyncio.CancelledError):
        await services.conversions.convert(request, output)

    assert len(list((tmp_path / "data" / "blobs").iterdir())) == (1 if saves else 0)
    after = await services.database.run(accounts.get, account.id)
    assert (after.credits_remaining, after.credits_held) == ((1, 0) if saves else (2, 0))
    file.close()
    await executor.close()
    await asyncio.to_thread(services.database.close)
