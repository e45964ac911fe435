"""Responses about accounts: registration, balance, limits, usage, API keys, purchases."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from storage.field_types import Count, Credits, KeyId, Size
from web.api.schemas.common import Message, Tier, Timestamp

ApiKey = Annotated[
    str,
    Field(
        pattern="^cvd_live_[0-9A-Za-z]{38}$",
        description="Shown only once.",
        examples=["cvd_live_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv01234"],
    ),
]
KeyPrefix = Annotated[
    str, Field(description="The first characters of the key, to identify it.", examples=["cvd_live_012345"])
]


class Registration(TypedDict):
    """The response to a registration. It is the same whether or not the address has an account."""

    email: Annotated[str, Field(examples=["you@example.com"])]
    verification_sent: Literal[True]
    message: Annotated[Message, Field(examples=["Open the link in the email within 24 hours to get your API key."])]


class VerifiedKey(TypedDict):
    """The API key of a verified account."""

    api_key: ApiKey
    key_id: KeyId
    key_prefix: KeyPrefix
    email: Annotated[str, Field(examples=["you@example.com"])]
    name: Annotated[str, Field(examples=["Photo shop"])]
    tier: Tier
    credits_remaining: Credits
    message: Annotated[Message, Field(examples=["Store this API key safely. It is not shown again."])]


class RateLimit(TypedDict):
    """The account's rate limit, and its current state."""

    limit: Annotated[int, Field(ge=1, description="Requests per window.", examples=[60])]
    window_seconds: Annotated[int, Field(examples=[60])]
    remaining: Annotated[int, Field(ge=0, examples=[59])]
    reset: Annotated[int, Field(description="End of the window in Unix time (seconds).", examples=[1795238640])]


class Limits(TypedDict):
    """The limits of the account."""

    max_file_size: Annotated[int, Field(description="Bytes.", examples=[10_485_760])]
    max_batch_files: Annotated[int, Field(examples=[50])]
    max_merge_files: Annotated[int, Field(examples=[20])]
    max_concurrent: Annotated[int, Field(description="Concurrent conversions.", examples=[2])]
    file_retention_seconds: Annotated[
        int, Field(description="How long files are stored, in seconds.", examples=[86_400])
    ]


class Storage(TypedDict):
    """The account's stored uploads and results, and its storage quota."""

    stored_bytes: Annotated[int, Field(ge=0, examples=[61_712])]
    max_stored_bytes: Annotated[int, Field(examples=[1_073_741_824])]


class Account(TypedDict):
    """The account, its balance and its limits."""

    name: Annotated[str, Field(examples=["Photo shop"])]
    email: Annotated[str, Field(examples=["you@example.com"])]
    tier: Tier
    credits_remaining: Credits
    credits_total_purchased: Annotated[int, Field(ge=0, examples=[0])]
    credits_used_total: Annotated[int, Field(ge=0, examples=[1])]
    max_file_size: Annotated[int, Field(description="Bytes.", examples=[10_485_760])]
    created_at: Timestamp
    last_used_at: Timestamp | None
    storage: Storage
    rate_limit: RateLimit
    limits: Limits


class Operations(TypedDict):
    """Conversions by endpoint."""

    convert: Count
    batch: Count
    pdf_merge: Count
    pdf_delete_pages: Count


class PairUsage(TypedDict):
    """Conversions of a pair of formats, failed ones included."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]
    count: Count
    credits: Credits


class DayUsage(TypedDict):
    """Usage on a day (UTC). `conversions` includes `failed`."""

    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", examples=["2026-11-21"])]
    conversions: Count
    failed: Count
    credits: Credits
    bytes_in: Size
    bytes_out: Size


class Usage(TypedDict):
    """Usage in a period. Totals include failed conversions; days without conversions are omitted."""

    period: Annotated[str, Field(examples=["2026-11"])]
    start: Timestamp
    end: Timestamp
    total_conversions: Count
    successful_conversions: Count
    failed_conversions: Count
    credits_used: Credits
    bytes_in: Size
    bytes_out: Size
    bytes_total: Size
    by_operation: Operations
    by_conversion: Annotated[list[PairUsage], Field(description="Most frequent first.")]
    by_day: list[DayUsage]


class Key(TypedDict):
    """An API key without its secret."""

    key_id: KeyId
    key_prefix: KeyPrefix
    name: Annotated[str, Field(examples=["Photo shop"])]
    created_at: Timestamp
    last_used_at: Timestamp | None
    expires_at: Annotated[str | None, Field(description="When the key expires, if it was rotated.")]


class Keys(TypedDict):
    """The valid API keys."""

    keys: list[Key]
    total: Annotated[int, Field(ge=1, examples=[1])]


class IssuedKey(Key):
    """A new API key."""

    api_key: ApiKey
    message: Annotated[Message, Field(examples=["Store this API key safely. It is not shown again."])]


class RotatedKey(IssuedKey):
    """A new API key that replaces another."""

    replaced_key_id: KeyId
    grace_period_seconds: Annotated[
        int, Field(description="How long the replaced key stays valid, in seconds.", examples=[3600])
    ]


class RevokedKey(TypedDict):
    """A revoked API key."""

    key_id: KeyId
    revoked: Literal[True]


class OpenedCheckout(TypedDict):
    """An open checkout."""

    checkout_url: Annotated[
        str,
        Field(
            description="The page to open in a browser.", examples=["https://checkout.stripe.com/c/pay/cs_live_a1b2c3"]
        ),
    ]
    session_id: Annotated[
        str, Field(description="The payment provider's id of the checkout.", examples=["cs_live_a1b2c3"])
    ]
    purchase_id: Annotated[
        str,
        Field(
            pattern="^pur_[0-9A-Za-z]{22}$",
            description="The id of the purchase.",
            examples=["pur_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
        ),
    ]
    pack: Annotated[str, Field(examples=["starter"])]
    credits: Annotated[int, Field(ge=1, examples=[500])]
    amount: Annotated[int, Field(ge=1, description="The price in cents.", examples=[500])]
    currency: Literal["eur"]
    language: Annotated[str, Field(description="The language of the checkout page.", examples=["en"])]
    status: Literal["open"]
    expires_at: Timestamp


class EventReceived(TypedDict):
    """The event was received."""

    received: Literal[True]
