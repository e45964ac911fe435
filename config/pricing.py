"""Tiers, credit packs and limits that are not settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

MIB = 1 << 20
RATE_WINDOW = 60  # seconds
CREDITS_PER_CONVERSION = 1
FREE_CREDITS = 50  # granted to a new account; with a setting, once per mailbox and DAY
FAILED_LOGINS = 30  # wrong API keys per IP address and RATE_WINDOW
EMAILS_PER_MAILBOX = 5  # verification emails per HOUR
REGISTRATIONS_PER_ADDRESS = 50  # per DAY
TRIALS_PER_ADDRESS = 5  # conversions without an API key, per DAY
TRIAL_PREVIEWS_PER_ADDRESS = 300  # previews and inspections on pages, per DAY
PREVIEWS_PER_ACCOUNT = 5_000  # the same for an account that is signed in, per DAY
REFUNDED_TRIALS = 50  # failed trial conversions that are not counted, per address and DAY
PAGE_REQUESTS = 600  # requests of the scripts of pages, per account or address and RATE_WINDOW
TRIAL_CREDITS_PER_DAY = 2_000  # for the trials of all addresses
HOUR = 3_600  # seconds
DAY = 86_400


TierName: TypeAlias = Literal["free", "paid"]


@dataclass(frozen=True)
class Tier:
    """Limits of an account: size of a file, size of all stored uploads (both in bytes), concurrent conversions.

    A conversion in the background may run for `job_seconds`.
    """

    name: TierName
    max_file_size: int
    max_stored: int
    max_concurrent: int
    job_seconds: int = 120


TIERS: Mapping[str, Tier] = MappingProxyType(
    {
        "free": Tier("free", max_file_size=10 * MIB, max_stored=1024 * MIB, max_concurrent=2),
        "paid": Tier("paid", max_file_size=100 * MIB, max_stored=20_480 * MIB, max_concurrent=8, job_seconds=900),
    }
)

TRIAL_TIER = Tier("free", max_file_size=5 * MIB, max_stored=0, max_concurrent=2)
"""The limits of an address for conversions without an account."""

CURRENCY: Final = "eur"


@dataclass(frozen=True)
class Pack:
    """A number of credits for a price in minor units of CURRENCY."""

    name: str
    credits: int
    price: int


PACKS: Mapping[str, Pack] = MappingProxyType(
    {
        "starter": Pack("starter", credits=500, price=5_00),
        "pro": Pack("pro", credits=2_000, price=15_00),
        "business": Pack("business", credits=10_000, price=50_00),
    }
)
