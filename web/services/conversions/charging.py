"""Charging: credits are held while an operation runs, then settled on success or released on failure."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Protocol

from engine.errors import ConversionError
from storage.database import Database, Transaction, by_account, unsynced
from storage.errors import ClaimLost, CommitUnknown, DatabaseBusy, NoCredits
from storage.ids import new_id
from storage.tables import api_keys, idempotency, ledger
from storage.tables.idempotency import Claim, StoredResponse
from storage.tables.ledger import Hold, ServerInstance
from storage.tables.usage import UsageRecord
from web.services.conversions.idempotency import ResponseData, stored_response
from web.services.conversions.releases import Releases, retry_while_busy

SETTLE_TIMEOUT = 7.0  # seconds after which no further attempt is made to find out whether a charge was committed
STANDSTILL = 1.0  # seconds; after a commit that took longer without an answer, only one attempt is made


class SaveResult(Protocol):
    """Saves the rows of a result, unless they are `saved`, and returns the response."""

    def __call__(self, transaction: Transaction, /, *, saved: bool = ...) -> ResponseData: ...


Finish = Callable[[Transaction, ResponseData], None]
"""Saves what else depends on the success of an operation: the response to a repeated request, or the end of a job."""


class Charge:
    """A hold on credits for a running operation. `finish` is called in the transaction that settles it.

    An operation that can be `repeated` needs not find out whether its charge was settled.
    """

    def __init__(
        self, database: Database, hold: Hold, usage: UsageRecord, finish: Finish | None, *, repeated: bool = False
    ) -> None:
        self._usage = usage
        self._database = database
        self._hold = hold
        self._finish = finish
        self._repeated = repeated

    async def settle(
        self, made: Sequence[tuple[str, int]], save: SaveResult | None = None, *, alone: bool = False
    ) -> tuple[int, ResponseData | None]:
        """Settles the charge of an operation and saves the result, in one transaction.

        `made` are the formats of its outputs and their sizes in bytes, each of which costs the same. `alone`: it may
        lock rows that others lock before the account, so that the transaction settles no other charge.

        Returns the balance in credits and the response, which `finish` gets if there is one. Raises CommitUnknown if
        the connection to the database is lost during the commit and cannot be restored, and the errors of `finish`.
        """
        first, *others = [replace(self._usage, output_format=name, bytes_out=size) for name, size in made]
        others = [replace(one, bytes_in=0) for one in others]
        started = monotonic()
        try:
            account = None if alone else self._hold.account
            return await self._database.run(_settle, account, self._hold, first, others, save, self._finish)
        except CommitUnknown as unknown:
            if self._repeated:
                raise
            # The commit may have succeeded: the database decides, once it is reachable again.
            deadline = started + (SETTLE_TIMEOUT if monotonic() - started < STANDSTILL else 0)
            try:
                if not await retry_while_busy(self.is_settled, deadline):
                    raise
                return await retry_while_busy(lambda: self._database.run(_read_settled, self._hold, save), deadline)
            except (DatabaseBusy, CommitUnknown):
                raise unknown from None

    async def is_settled(self) -> bool:
        """Whether the charge is settled, which is possible even if `settle` was cancelled."""
        return await self._database.run(ledger.is_settled, self._hold)


class Charges:
    """Holds credits for operations. `owner` identifies this run of this server."""

    def __init__(self, database: Database, owner: ServerInstance, releases: Releases) -> None:
        self._database = database
        self._owner = owner
        self._releases = releases

    @asynccontextmanager
    async def hold(
        self, account: str, key_id: str, amount: int, usage: UsageRecord, claim: Claim | None
    ) -> AsyncIterator[Charge]:
        """Holds credits for the block, which settles the charge; releases them if it raises.

        Raises NoCredits, InvalidKey if the key was revoked or expired after the request was authenticated, and
        DatabaseBusy.
        """
        hold_id = new_id("hold")  # created here: a cancelled reservation may be committed and must be released
        try:
            hold = await self._database.run(reserve, account, amount, key_id, hold_id, owner=self._owner)
            yield Charge(self._database, hold, usage, None if claim is None else partial(_store_response, claim))
        except BaseException as error:
            with suppress(asyncio.CancelledError):  # the task may be cancelled again
                await self._releases.run(_release, account, hold_id, usage, claim, error)
            raise

    @asynccontextmanager
    async def held(self, hold: Hold, usage: UsageRecord, finish: Finish) -> AsyncIterator[Charge]:
        """The charge of an operation that can be repeated, for a hold that exists already, and stays if that fails."""
        yield Charge(self._database, hold, usage, finish, repeated=True)


@by_account
@unsynced
def reserve(
    transaction: Transaction, account: str, amount: int, key_id: str, hold_id: str, *, owner: ServerInstance
) -> Hold:
    """Holds credits. Raises NoCredits, and InvalidKey if the key is no longer valid.

    The key is empty in a session that was opened by email.
    """
    try:
        return ledger.reserve(transaction, account, amount, owner, hold_id, key_id or None)
    except NoCredits:
        if key_id:
            api_keys.check_valid(transaction, account, key_id)
        raise


@by_account
def _settle(
    transaction: Transaction,
    _account: str | None,
    hold: Hold,
    usage: UsageRecord,
    additional: Sequence[UsageRecord],
    save: SaveResult | None,
    finish: Finish | None,
) -> tuple[int, ResponseData | None]:
    balance = ledger.settle(transaction, hold, usage, *additional)
    response = save(transaction) if save else None
    if finish is not None and response is not None:
        finish(transaction, response)
    return balance, response


def _store_response(claim: Claim, transaction: Transaction, response: ResponseData) -> None:
    idempotency.finish(transaction, claim, stored_response(response))


def _read_settled(transaction: Transaction, hold: Hold, save: SaveResult | None) -> tuple[int, ResponseData | None]:
    return ledger.balance(transaction, hold.account), save(transaction, saved=True) if save else None


def _release(
    transaction: Transaction, account: str, hold_id: str, usage: UsageRecord, claim: Claim | None, error: BaseException
) -> None:
    """Releases the hold. Records failures of the engine as usage and stores permanent ones as the response."""
    failed = isinstance(error, ConversionError) and error.code == "processing_failed"
    ledger.release(transaction, account, hold_id, usage if failed else None)
    if claim is None:
        return
    if isinstance(error, ConversionError) and failed and not error.retryable:
        with suppress(ClaimLost):
            idempotency.finish(transaction, claim, StoredResponse(500, body=json.dumps(error.as_json())))
    else:
        idempotency.abandon(transaction, claim)
