"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass

from config.tariff import TIERS, Tier


@dataclass(frozen=True)
class Account:
    """Whoever a request is made for, as it stands when the request arrives."""

    id: str
    tier: Tier
    credits_remaining: int


class DevelopmentAccounts:
    """One built-in account that every request runs as, whatever key it shows."""

    async def authenticate(self, _authorization: str | None) -> Account:
        """The account behind an Authorization header."""
        return Account("development", TIERS["paid"], credits_remaining=1_000_000)
