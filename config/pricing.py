"""Plans, credit packs and limits: the defaults of the settings `plans` and `packs`, and what is no setting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MIB = 1 << 20
RATE_WINDOW = 60  # seconds
CREDITS_PER_CONVERSION = 1
FREE_CREDITS = 50  # granted to a new account; with a setting, once per mailbox and DAY
TEST_CONVERSIONS = 100  # conversions with test keys, per account and DAY
FAILED_LOGINS = 30  # wrong API keys per IP address and RATE_WINDOW
EMAILS_PER_MAILBOX = 5  # verification emails per HOUR
REGISTRATIONS_PER_ADDRESS = 50  # per DAY
TRIAL_PREVIEWS_PER_ADDRESS = 300  # previews and inspections on pages, per DAY
PREVIEWS_PER_ACCOUNT = 5_000  # the same for an account that is signed in, per DAY
REFUNDED_TRIALS = 50  # failed trial conversions that are not counted, per address and DAY
PAGE_REQUESTS = 600  # requests of the scripts of pages, per account or address and RATE_WINDOW
TRIAL_CREDITS_PER_DAY = 2_000  # for the trials of all addresses
HOUR = 3_600  # seconds
DAY = 86_400

_UNITS: Mapping[str, int] = MappingProxyType({"": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30})
_MAX_NUMBER = (1 << 40) - 1


def size(value: object) -> object:
    """The bytes of a size such as "500MB"; 1 MB is 1,048,576 bytes. Returns other values as they are."""
    match = re.fullmatch(r"(\d{1,13}) ?([kmg]?)(?:i?b)?", str(value).strip().lower(), re.ASCII)
    return int(match[1]) * _UNITS[match[2]] if match and isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(size), Field(le=_MAX_NUMBER)]
Number = Annotated[int, Field(ge=1, le=_MAX_NUMBER)]


class PlanChanges(BaseModel):
    """Limits that differ from those of a plan; None where they do not. They have the names and units of Plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    max_file_size: Annotated[Size, Field(ge=1)] | None = None
    requests_per_minute: Number | None = None
    max_concurrent: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_stored_bytes: Annotated[Size, Field(ge=0)] | None = None
    file_retention_seconds: Number | None = None
    job_seconds: Annotated[int, Field(ge=1, le=DAY)] | None = None
    unmetered: bool | None = None


@dataclass(frozen=True)
class Plan:
    """Limits of an account: size of a file, size of all stored uploads and results (both in bytes), requests,
    concurrent conversions, seconds that files are kept, and seconds that a conversion in the background may run.

    Conversions of an `unmetered` account cost nothing.
    """

    name: str
    max_file_size: int = 100 * MIB
    requests_per_minute: int = 300
    max_concurrent: int = 8
    max_stored_bytes: int = 20_480 * MIB
    file_retention_seconds: int = DAY
    job_seconds: int = 900
    unmetered: bool = False

    @property
    def price(self) -> int:
        """The credits that a conversion costs."""
        return 0 if self.unmetered else CREDITS_PER_CONVERSION

    def changed(self, changes: PlanChanges) -> Plan:
        """Returns the plan with the limits that differ."""
        return replace(self, **changes.model_dump(exclude_none=True))


_FREE = Plan("free", 10 * MIB, 60, 2, 1024 * MIB, job_seconds=120)
DEFAULT_PLANS: Mapping[str, Plan] = MappingProxyType(
    {
        "free": _FREE,
        "paid": Plan("paid"),
        "trial": replace(_FREE, name="trial", max_file_size=5 * MIB, max_stored_bytes=0),
    }
)
"""`free` is the plan of new accounts, `paid` that of accounts that have bought credits, and `trial` the plan of an
address without an account. Another plan has the limits of `paid` where it has none of its own."""

CURRENCY: Final = "eur"


class Pack(BaseModel):
    """A number of credits for an amount in minor units of CURRENCY."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    credits: Number
    amount: Number


DEFAULT_PACKS: Mapping[str, Pack] = MappingProxyType(
    {
        "starter": Pack(credits=500, amount=5_00),
        "pro": Pack(credits=2_000, amount=15_00),
        "business": Pack(credits=10_000, amount=50_00),
    }
)
