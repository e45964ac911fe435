"""Types of fields that clients see too, with their JSON Schema. Times are Unix time here, and texts in JSON."""

from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from pydantic import Field, PlainSerializer, WithJsonSchema


def format_timestamp(unix: int) -> str:
    """Formats Unix time as `YYYY-MM-DD HH:MM:SS` in UTC."""
    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None).isoformat(" ", "seconds")


Timestamp: TypeAlias = Annotated[
    int,
    PlainSerializer(format_timestamp, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$",
            "description": "UTC.",
            "examples": ["2026-11-21 05:23:00"],
        },
        mode="serialization",
    ),
]
FileId: TypeAlias = Annotated[
    str,
    Field(pattern="^file_[0-9A-Za-z]{22}$", description="The file's id.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
BatchId: TypeAlias = Annotated[
    str,
    Field(pattern="^batch_[0-9A-Za-z]{22}$", description="The batch's id.", examples=["batch_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
JobId: TypeAlias = Annotated[
    str,
    Field(pattern="^job_[0-9A-Za-z]{22}$", description="The job's id.", examples=["job_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
WebhookId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^webhook_[0-9A-Za-z]{22}$",
        description="The webhook's id.",
        examples=["webhook_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
DeliveryId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^delivery_[0-9A-Za-z]{22}$",
        description="The delivery's id, which the receiver gets as `webhook-id`.",
        examples=["delivery_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
KeyId: TypeAlias = Annotated[
    str, Field(pattern="^key_[0-9A-Za-z]{22}$", description="The key's id.", examples=["key_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])
]
PurchaseId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^pur_[0-9A-Za-z]{22}$", description="The id of the purchase.", examples=["pur_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]
    ),
]
KeyPrefix: TypeAlias = Annotated[
    str, Field(description="The first characters of the key, to identify it.", examples=["cvd_live_012345"])
]
ApiKey: TypeAlias = Annotated[
    str,
    Field(
        pattern="^cvd_(live|test)_[0-9A-Za-z]{38}$",
        description="Shown only once.",
        examples=["cvd_live_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv01234"],
    ),
]
Cursor: TypeAlias = Annotated[
    str | None,
    Field(
        description="The `cursor` of the next page; null on the last one.",
        examples=["1795238640-file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
Email: TypeAlias = Annotated[str, Field(examples=["you@example.com"])]
Name: TypeAlias = Annotated[str, Field(examples=["Photo shop"])]
Size: TypeAlias = Annotated[int, Field(ge=0, description="Bytes.", examples=[48213])]
Count: TypeAlias = Annotated[int, Field(ge=0, examples=[3])]
Credits: TypeAlias = Annotated[int, Field(ge=0, examples=[49])]
