"""Test keys: their conversions cost nothing, are limited by account, and have a warning in each result."""

from dataclasses import replace
from typing import Final

from config.pricing import DAY, TEST_CONVERSIONS
from engine.outcome import Outcome, WarningRecord
from storage.errors import InvalidKey
from storage.rate_limits import RateLimiter
from web.api.errors import RateLimited
from web.services.accounts.accounts import Account

TEST_MODE: Final = WarningRecord("test_mode", "Made with a test key, which is for tests of your program.")
"""The warning of each result, so that none is taken for one that was paid."""


class TestKeyLimit:
    """Limits the conversions with test keys."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    async def count(self, account: Account, number: int = 1) -> None:
        """Counts conversions of a test key of the account. Raises RateLimited; those before are counted."""
        for _ in range(number):
            status = await self._limiter.hit(f"test:{account.id}", TEST_CONVERSIONS, DAY)
            if not status.allowed:
                raise RateLimited(
                    f"The {TEST_CONVERSIONS} conversions of a day with test keys are used up.",
                    retry_after=status.retry_after,
                    reason="test_limit",
                    limit=status,
                )


def marked(outcome: Outcome) -> Outcome:
    """The outcome, and each of several in it, with the warning TEST_MODE."""
    parts = outcome.outputs and tuple(replace(part, warnings=(*part.warnings, TEST_MODE)) for part in outcome.outputs)
    return replace(outcome, warnings=(*outcome.warnings, TEST_MODE), outputs=parts)


def check_live(account: Account) -> None:
    """Raises InvalidKey for a test key, which changes no keys and buys nothing."""
    if account.key_mode == "test":
        raise InvalidKey("A test key cannot do this. Use a live key.")
