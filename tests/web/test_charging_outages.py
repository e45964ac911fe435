"""Charges whose database is lost for a while: what stands there decides, once it can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from engine.errors import StepFailed
from storage import ledger
from storage.database import Database
from storage.errors import CommitUnknown, DatabaseBusy
from storage.ledger import ServerInstance
from storage.usage import UsageRecord
from tests.support.storage_samples import open_account
from web.services import charging
from web.services.charging import Charges

pytestmark = pytest.mark.both_databases

OWNER = ServerInstance("server", "boot")
USE = UsageRecord("convert", "png", "webp", 1)


class Shaky(Database):
    """A database that is lost during commits, and then for a number of questions, when it is told to."""

    away = 0
    saves = True

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if function is charging._settle:
            if self.saves:
                await super().run(function, *args, **kwargs)
            raise CommitUnknown
        if self.away:
            self.away -= 1
            raise DatabaseBusy
        return await super().run(function, *args, **kwargs)


@pytest.fixture
def shaky(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shaky]:
    monkeypatch.setattr(charging, "_RETRY_DELAYS", (0.01, 0.01, 0.01))
    database = Shaky(url)
    yield database
    database.close()


@pytest.fixture
def account(shaky: Shaky) -> str:
    return open_account(shaky, 3).id


@pytest.fixture
async def opened(shaky: Shaky) -> AsyncIterator[Charges]:
    charges = Charges(shaky, OWNER)
    yield charges
    await charges.close()


async def _settled(opened: Charges, shaky: Shaky, account: str, away: int) -> tuple[int, object]:
    async with opened.charged(account, 1, USE, None) as charge:
        shaky.away = away
        return await charge.settle(10)


async def _failed(opened: Charges, shaky: Shaky, account: str, away: int) -> None:
    async with opened.charged(account, 1, USE, None):
        shaky.away = away
        raise StepFailed("It failed.")


async def _left(opened: Charges, shaky: Shaky, account: str) -> int:
    await opened.close()
    shaky.away = 0
    balance: int = await shaky.run(ledger.balance, account)
    return balance


async def test_a_charge_that_was_saved_is_final(opened: Charges, shaky: Shaky, account: str) -> None:
    assert await _settled(opened, shaky, account, away=2) == (2, None)
    assert await _left(opened, shaky, account) == 2


async def test_a_charge_that_was_not_saved_is_given_back(opened: Charges, shaky: Shaky, account: str) -> None:
    shaky.saves = False
    with pytest.raises(CommitUnknown):
        await _settled(opened, shaky, account, away=2)
    assert await _left(opened, shaky, account) == 3


async def test_who_cannot_know_says_so(opened: Charges, shaky: Shaky, account: str) -> None:
    with pytest.raises(CommitUnknown):  # and not that nothing has happened
        await _settled(opened, shaky, account, away=1000)
    assert await _left(opened, shaky, account) == 2


async def test_credits_come_back_when_the_database_does(opened: Charges, shaky: Shaky, account: str) -> None:
    with pytest.raises(StepFailed):  # what went wrong, and not what went wrong afterwards
        await _failed(opened, shaky, account, away=2)
    assert await _left(opened, shaky, account) == 3


async def test_nobody_waits_for_long_for_credits_to_be_back(
    opened: Charges, shaky: Shaky, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charging, "_RETRY_DELAYS", (3,))
    monkeypatch.setattr(charging, "_RELEASE_TIMEOUT", 0.05)
    async with asyncio.timeout(2):
        with pytest.raises(StepFailed):
            await _failed(opened, shaky, account, away=1)
    assert await _left(opened, shaky, account) == 3
