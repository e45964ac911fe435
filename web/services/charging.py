"""Charges: credits are held while an operation runs, settled when it succeeded, and given back when it did not."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from engine.errors import ConversionError
from storage import idempotency, ledger
from storage.database import Database
from storage.errors import ClaimLost, CommitUnknown, DatabaseBusy
from storage.idempotency import Claim, StoredResponse
from storage.ids import new_id
from storage.ledger import Hold, ServerInstance
from storage.transaction import Transaction
from storage.usage import UsageRecord
from web.services.idempotency import LEASE, Answer, stored

log = logging.getLogger("convertd.charges")

T = TypeVar("T")

_RETRY_DELAYS = (0.2, 0.4, 0.8, 1.6, 3.2)  # seconds
_RELEASE_TIMEOUT = 1.0  # seconds; whoever is refused waits no longer for the credits to be back

SaveResult = Callable[[Transaction], Answer]
"""Writes what is to be kept of a result, and gives the answer; the same one when it is called again."""


class Charge:
    """Credits held for an operation that runs, and the claim on its idempotency key if it has one."""

    def __init__(self, database: Database, hold: Hold, use: UsageRecord, claim: Claim | None) -> None:
        self.claim = claim
        self.use = use
        self._database = database
        self._hold = hold

    async def settle(self, size: int, keep: SaveResult | None = None) -> tuple[int, Answer | None]:
        """Makes the charge final, for a result of `size` bytes, together with what is kept of it.

        Gives the balance and the answer, which repeats of the request will get.
        """
        use = replace(self.use, bytes_out=size)
        try:
            return await self._database.run(_settle, self._hold, use, keep, self.claim)
        except CommitUnknown as unknown:
            # The connection was lost while it was saving: what stands there decides, as soon as it can be asked.
            try:
                if not await _retry_while_busy(self.is_settled):
                    raise
                return await _retry_while_busy(lambda: self._database.run(_settled, self._hold, keep))
            except DatabaseBusy:
                raise unknown from None

    async def is_settled(self) -> bool:
        """Whether the charge is final, as it may be although `settle` was cancelled."""
        return await self._database.run(ledger.is_settled, self._hold)


class Charges:
    """Opens charges. `owner` is this run of this server, which takes back what earlier runs left held."""

    def __init__(self, database: Database, owner: ServerInstance) -> None:
        self._database = database
        self._owner = owner
        self._releases: set[asyncio.Task[None]] = set()

    async def recover(self) -> int:
        """Gives back what earlier runs of this server held when they ended; says how many holds that were."""
        return await self._database.run(ledger.recover, self._owner)

    async def close(self) -> None:
        """Waits for releases that are under way."""
        while self._releases:
            await asyncio.wait(self._releases)

    @asynccontextmanager
    async def charged(self, account: str, amount: int, use: UsageRecord, claim: Claim | None) -> AsyncIterator[Charge]:
        """Holds credits for the block, which settles the charge; one that raises is not charged. Raises NoCredits."""
        hold_id = new_id("hold")  # known beforehand, so that a hold can be released even if nobody hears of it
        try:
            hold = await self._database.run(ledger.reserve, account, amount, self._owner, LEASE, hold_id)
            yield Charge(self._database, hold, use, claim)
        except BaseException as error:
            # In a task of its own: the one that runs may be cancelled again before the credits are back.
            giving_back = partial(self._database.run, _release, account, hold_id, use, claim, error)
            release = asyncio.create_task(_retry_while_busy(giving_back))
            self._releases.add(release)
            release.add_done_callback(self._released)
            with suppress(asyncio.CancelledError):
                await asyncio.wait([release], timeout=_RELEASE_TIMEOUT)
            raise

    def _released(self, release: asyncio.Task[None]) -> None:
        self._releases.discard(release)
        if not release.cancelled() and release.exception() is not None:
            log.error("credits are held until their lease ends", exc_info=release.exception())


async def _retry_while_busy(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Asks the database again while it is busy, as it is when it is restarted. Raises DatabaseBusy in the end."""
    for pause in _RETRY_DELAYS:
        with suppress(DatabaseBusy):
            return await ask()
        await asyncio.sleep(pause)
    return await ask()


def _settle(
    transaction: Transaction, hold: Hold, use: UsageRecord, keep: SaveResult | None, claim: Claim | None
) -> tuple[int, Answer | None]:
    balance = ledger.settle(transaction, hold, use)
    answer = keep(transaction) if keep else None
    if claim is not None and answer is not None:
        idempotency.finish(transaction, claim, stored(answer))
    return balance, answer


def _settled(transaction: Transaction, hold: Hold, keep: SaveResult | None) -> tuple[int, Answer | None]:
    return ledger.balance(transaction, hold.account), keep(transaction) if keep else None


def _release(
    transaction: Transaction, account: str, hold_id: str, use: UsageRecord, claim: Claim | None, error: BaseException
) -> None:
    """Releases the hold. Failures of an engine are counted, and those that would come again are remembered."""
    failed = isinstance(error, ConversionError) and error.code == "processing_failed"
    ledger.release(transaction, account, hold_id, use if failed else None)
    if claim is None:
        return
    if isinstance(error, ConversionError) and failed and not error.retryable:
        with suppress(ClaimLost):
            idempotency.finish(transaction, claim, StoredResponse(500, body=json.dumps(error.as_json())))
    else:
        idempotency.abandon(transaction, claim)
