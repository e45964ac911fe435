"""A client that goes away at the very moment at which its charge is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from engine.executor import LocalExecutor
from engine.registry import load_registry
from storage import accounts, keyring
from storage.transaction import Transaction
from storage.usage import Use
from tests.samples import sample
from web.app import assemble
from web.services.charges import Charge
from web.services.conversion import Converted, Order, Upload


class CutOff(Charge):
    """Is cancelled before or after it is saved."""

    saves = True

    async def settle(self, size: int, answer: Mapping[str, Any] | None = None, file_id: str | None = None) -> int:
        if self.saves:
            await super().settle(size, answer, file_id)
        raise asyncio.CancelledError


def _key(transaction: Transaction) -> str:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=2)
    return keyring.issue(transaction, account.id, "Test").text


@pytest.mark.parametrize("saves", [True, False])
async def test_a_result_that_is_paid_for_stays(tmp_path: Path, saves: bool) -> None:
    services = assemble(Settings(data_dir=tmp_path / "data"), load_registry(), LocalExecutor(1))
    account = await services.accounts.authenticate(f"Bearer {await services.database.run(_key)}")
    path = tmp_path / "result.png"
    path.write_bytes(sample("png"))
    png = load_registry().formats["png"]
    converted = Converted(path, "a.png", png, png, original_size=9, size=9, seconds=0.1, warnings=())
    order = Order(account, Upload(path, "a.png", 9), "png", keep=True)

    async def settle() -> None:
        async with services.charges.charged(account.id, 1, Use("convert", "png", "png", 9), None) as charge:
            charge.__class__, CutOff.saves = CutOff, saves
            await services.conversions._settled(order, converted, charge)

    with pytest.raises(asyncio.CancelledError):
        await settle()

    kept = [file for file in (tmp_path / "data" / "files").iterdir() if file.suffix != ".json"]
    assert len(kept) == (1 if saves else 0)
    after = await services.database.run(accounts.get, account.id)
    assert (after.balance, after.held) == ((1, 0) if saves else (2, 0))
    await asyncio.to_thread(services.database.close)
