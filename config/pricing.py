"""What accounts may do, by tier, and what credits cost. Requests a minute are settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

MIB = 1 << 20
RATE_WINDOW = 60  # seconds
CREDITS_PER_CONVERSION = 1
FREE_CREDITS = 50  # of a new account, once
FAILED_LOGINS = 30  # wrong keys an address may show in a RATE_WINDOW
REGISTRATIONS_PER_EMAIL = 5  # in HOUR seconds
REGISTRATIONS_PER_ADDRESS = 50  # in DAY seconds
HOUR, DAY = 3_600, 86_400


TierName: TypeAlias = Literal["free", "paid"]


@dataclass(frozen=True)
class Tier:
    """The limits of a kind of account: bytes of a file, bytes of all uploads that are kept, conversions at a time."""

    name: TierName
    max_file_size: int
    max_stored: int
    max_concurrent: int


TIERS: Mapping[str, Tier] = MappingProxyType(
    {
        "free": Tier("free", max_file_size=10 * MIB, max_stored=1024 * MIB, max_concurrent=2),
        "paid": Tier("paid", max_file_size=100 * MIB, max_stored=20_480 * MIB, max_concurrent=8),
    }
)

CURRENCY: Final = "eur"


@dataclass(frozen=True)
class Pack:
    """Credits that are sold together; the price is in minor units of CURRENCY."""

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
