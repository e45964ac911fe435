"""Trial conversions of the landing page: without an API key, limited by client address.

One account, which no one can sign in to, pays for all of them. It gets its credits once a day. Previews cost nothing.
In the job queue, each address is a tenant of its own, and each job has a process of its own.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from config.pricing import (
    DAY,
    FREE_CREDITS,
    PREVIEWS_PER_ACCOUNT,
    REFUNDED_TRIALS,
    TRIAL_CREDITS_PER_DAY,
    TRIAL_PREVIEWS_PER_ADDRESS,
)
from config.settings import Settings
from engine.outcome import Outcome
from storage.database import Database, Transaction
from storage.errors import EmailTaken
from storage.rate_limits import RateLimiter, RateLimitStatus
from storage.tables import accounts, api_keys, ledger
from storage.tables.accounts import TRIAL_EMAIL
from storage.tables.api_keys import Key
from web.api.errors import RateLimited
from web.api.schemas.files import reduction_percent
from web.api.values import Flat, Inline
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import ConversionRequest

_MAX_WARNINGS = 10  # warnings and characters of their messages in a header
_MAX_MESSAGE = 300


class TrialsUsed(RateLimited):
    """No trial conversion is left. `details` has the path of the registration page."""

    def __init__(self, message: str, retry_after: int, limit: RateLimitStatus | None = None) -> None:
        advice = f"Register for an API key with {FREE_CREDITS} free conversions."
        super().__init__(f"{message} {advice}", retry_after=retry_after, reason="trials", limit=limit)
        self.details["register_url"] = "/register"


class Trials:
    """Provides the account of trial conversions, and limits trials and previews by address."""

    def __init__(self, database: Database, limiter: RateLimiter, settings: Settings) -> None:
        self._database = database
        self._limiter = limiter
        self._settings = settings
        self.per_day = settings.trials

    async def account(self, address: str) -> Account:
        """Returns the account for a client at a network address. Creates the account at its first use.

        Raises DatabaseBusy.
        """
        stored, key = await self._database.run(_open_account)
        account = Account.from_storage(stored, key.key_id, self._settings)
        return replace(account, tier=self._settings.all_plans["trial"], client=address)

    async def remaining(self, address: str) -> int:
        """Returns how many trial conversions the address has left."""
        return (await self._limiter.peek(*await self._address_limit(address))).remaining if self.per_day else 0

    async def check(self, address: str) -> None:
        """Raises TrialsUsed if the address has no trial conversion left, and RateLimited if there are none."""
        self.check_offered()
        self._check(await self._limiter.peek(*await self._address_limit(address)))

    def check_offered(self) -> None:
        """Raises RateLimited if this server has no trials."""
        if not self.per_day:
            raise RateLimited("This server converts nothing without an account.", retry_after=DAY, reason="trials")

    @asynccontextmanager
    async def counted(self, address: str) -> AsyncIterator[int]:
        """Counts the trial conversion of the block, unless it fails, and yields how many are left. Raises TrialsUsed.

        Of the failures of a day, only some are not counted, so that nobody converts broken files for ever.
        """
        status = self._check(await self._limiter.hit(*await self._address_limit(address)))
        try:
            yield status.remaining
        except BaseException:
            await asyncio.shield(self._limiter.hit(*_refund_limit(address)))
            raise

    async def _address_limit(self, address: str) -> tuple[str, int, int]:
        """Returns the key, the number of conversions and the seconds of their window for the rate limiter."""
        refunds = await self._limiter.peek(*_refund_limit(address))
        return f"trials:conversions:{address}", self.per_day + refunds.limit - refunds.remaining, DAY

    def _check(self, status: RateLimitStatus) -> RateLimitStatus:
        if not status.allowed:
            message = f"The {self.per_day} trial conversions of a day are used up."
            raise TrialsUsed(message, status.retry_after, status)
        return status

    async def count_preview(self, address: str, signed_in: Account | None = None) -> None:
        """Counts a preview or an inspection for the account that is signed in, or the address. Raises RateLimited."""
        key = f"trials:previews:{signed_in.id if signed_in else address}"
        limit = PREVIEWS_PER_ACCOUNT if signed_in else TRIAL_PREVIEWS_PER_ADDRESS
        status = await self._limiter.hit(key, limit, DAY)
        if not status.allowed:
            raise RateLimited(
                "No more previews today.", retry_after=status.retry_after, reason="previews", limit=status
            )


def credits_used_up() -> TrialsUsed:
    """The error for an account of trials without credits."""
    return TrialsUsed("Today's trial conversions of this site are used up.", DAY - int(time.time()) % DAY)


@dataclass(frozen=True)
class TrialResult(Flat):
    """The result of a trial conversion."""

    input_format: str | None
    original_size: int
    outcome: Inline[Outcome]
    reduction_percent: float
    trials_remaining: int


def trial_result(request: ConversionRequest, outcome: Outcome, remaining: int) -> TrialResult:
    """Describes the result of a trial conversion."""
    reduction = reduction_percent(request.size, outcome)
    return TrialResult(request.context.input_format, request.size, outcome, reduction, remaining)


def header_text(result: Mapping[str, Any]) -> str:
    """A result as JSON, with as many warnings as fit into a header."""
    warnings = [{**one, "message": one["message"][:_MAX_MESSAGE]} for one in result["warnings"][:_MAX_WARNINGS]]
    return json.dumps({**result, "warnings": warnings})


def _refund_limit(address: str) -> tuple[str, int, int]:
    return f"trials:refunds:{address}", REFUNDED_TRIALS, DAY


def _open_account(transaction: Transaction) -> tuple[accounts.StoredAccount, Key]:
    """Returns the account and a valid key, whose text is not kept. Adds the credits of the day."""
    account = _find_or_create(transaction)
    keys = api_keys.list_keys(transaction, account.id)
    key = keys[0] if keys else api_keys.issue(transaction, account.id, account.name).key
    missing = TRIAL_CREDITS_PER_DAY - account.credits_remaining - account.credits_held
    if missing > 0:
        ref = f"trials:{account.id}:{transaction.now // DAY}"
        balance = ledger.credit(transaction, account.id, "grant", missing, ref).balance
        account = replace(account, credits_remaining=balance)
    return account, key


def _find_or_create(transaction: Transaction) -> accounts.StoredAccount:
    account = accounts.find(transaction, TRIAL_EMAIL)
    if account is None:
        try:
            return accounts.create(transaction, TRIAL_EMAIL, "Trial conversions", free_credits=0)
        except EmailTaken:  # another server has created the account meanwhile
            account = accounts.find(transaction, TRIAL_EMAIL)
            if account is None:
                raise
    return account
