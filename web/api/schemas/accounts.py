"""Responses about accounts: what the web layer adds to the values of the database."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from config.pricing import RATE_WINDOW
from storage.field_types import ApiKey, Credits, Email, KeyId, KeyPrefix, Name
from storage.rate_limits import RateLimitStatus
from storage.tables import accounts, api_keys, usage
from web.api.values import Flat, Inline, Message

REGISTERED = "Open the link in the email within 24 hours to get your API key."
NEW_KEY = "Store this API key safely. It is not shown again."

NewKeyMessage: TypeAlias = Annotated[Message, Field(examples=[NEW_KEY])]
Tier: TypeAlias = Annotated[
    str,
    Field(
        description="`free`, `paid` from the first purchase of credits on, or another plan of the service.",
        examples=["free"],
    ),
]
MaxFileSize: TypeAlias = Annotated[int, Field(description="Bytes.", examples=[10_485_760])]


@dataclass(frozen=True)
class Registration:
    """The response to a registration. It is the same whether or not the address has an account."""

    email: Email
    verification_sent: Literal[True] = True
    message: Annotated[Message, Field(examples=[REGISTERED])] = REGISTERED


@dataclass(frozen=True)
class VerifiedKey:
    """The API key of a verified account."""

    api_key: ApiKey
    key_id: KeyId
    key_prefix: KeyPrefix
    email: Email
    name: Name
    tier: Tier
    credits_remaining: Credits
    message: NewKeyMessage = NEW_KEY


@dataclass(frozen=True)
class RateLimit(Flat):
    """The account's rate limit, and its current state."""

    status: Inline[RateLimitStatus]
    window_seconds: Annotated[int, Field(examples=[60])] = RATE_WINDOW


@dataclass(frozen=True)
class Limits:
    """The limits of the account."""

    max_file_size: MaxFileSize
    max_batch_files: Annotated[int, Field(examples=[50])]
    max_merge_files: Annotated[int, Field(examples=[20])]
    max_concurrent: Annotated[int, Field(description="Concurrent conversions.", examples=[2])]
    file_retention_seconds: Annotated[
        int, Field(description="How long files are stored, in seconds.", examples=[86_400])
    ]


@dataclass(frozen=True)
class Storage:
    """The account's stored uploads and results, and its storage quota."""

    stored_bytes: Annotated[int, Field(ge=0, examples=[61_712])]
    max_stored_bytes: Annotated[int, Field(examples=[1_073_741_824])]


@dataclass(frozen=True)
class Account(Flat):
    """The account, its balance and its limits."""

    account: Inline[accounts.StoredAccount]
    tier: Tier
    max_file_size: MaxFileSize
    storage: Storage
    rate_limit: RateLimit
    limits: Limits


@dataclass(frozen=True)
class Usage(Flat):
    """Usage in a period. Totals include failed conversions; days without conversions are omitted."""

    period: Annotated[str, Field(examples=["2026-11"])]
    report: Inline[usage.UsageReport]


@dataclass(frozen=True)
class Keys:
    """The valid API keys."""

    keys: tuple[api_keys.Key, ...]
    total: Annotated[int, Field(ge=1, examples=[1])]


@dataclass(frozen=True)
class IssuedKey(Flat):
    """A new API key."""

    key: Inline[api_keys.Key]
    api_key: ApiKey
    message: NewKeyMessage = NEW_KEY


@dataclass(frozen=True)
class RotatedKey(Flat):
    """A new API key that replaces another."""

    issued: Inline[IssuedKey]
    replaced_key_id: KeyId
    grace_period_seconds: Annotated[
        int, Field(description="How long the replaced key stays valid, in seconds.", examples=[3600])
    ]


@dataclass(frozen=True)
class RevokedKey:
    """A revoked API key."""

    key_id: KeyId
    revoked: Literal[True] = True


@dataclass(frozen=True)
class EventReceived:
    """The event was received."""

    received: Literal[True] = True
