"""Trial conversions of the landing page: without an API key, limited by client address.

One account, which no one can sign in to, pays for all of them. It gets its credits once a day. Previews cost nothing.
In the job queue, each address is a tenant of its own, and each job has a process of its own.
"""

import time
from dataclasses import dataclass, replace

from config.pricing import (
    DAY,
    FREE_CREDITS,
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
        return (await self._limiter.peek(*self._address_limit(address))).remaining if self.per_day else 0

    async def check(self, address: str) -> None:
        """Raises TrialsUsed if the address has no trial conversion left, and RateLimited if there are none."""
        self.check_offered()
        _check(await self._limiter.peek(*self._address_limit(address)))

    def check_offered(self) -> None:
        """Raises RateLimited if this server has no trials."""
        if not self.per_day:
            raise RateLimited("This server converts nothing without an account.", retry_after=DAY, reason="trials")

    async def count(self, address: str) -> int:
        """Counts a trial conversion, and returns how many are left. Raises TrialsUsed."""
        return _check(await self._limiter.hit(*self._address_limit(address))).remaining

    async def count_preview(self, address: str) -> None:
        """Counts a preview or an inspection. Raises RateLimited."""
        status = await self._limiter.hit(f"trials:previews:{address}", TRIAL_PREVIEWS_PER_ADDRESS, DAY)
        if not status.allowed:
            raise RateLimited(
                "No more previews today.", retry_after=status.retry_after, reason="previews", limit=status
            )

    def _address_limit(self, address: str) -> tuple[str, int, int]:
        """Returns the key, the number of conversions and the seconds of their window for the rate limiter."""
        return f"trials:conversions:{address}", self.per_day, DAY


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
    """Describes the result of a trial conversion, with as many warnings as fit into a header."""
    warnings = tuple(replace(one, message=one.message[:_MAX_MESSAGE]) for one in outcome.warnings[:_MAX_WARNINGS])
    reduction = reduction_percent(request.size, outcome)
    return TrialResult(
        request.context.input_format, request.size, replace(outcome, warnings=warnings), reduction, remaining
    )


def _check(status: RateLimitStatus) -> RateLimitStatus:
    if not status.allowed:
        message = f"The {status.limit} trial conversions of a day are used up."
        raise TrialsUsed(message, status.retry_after, status)
    return status


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
