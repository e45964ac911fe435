"""Values that stand in several answers."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from config.pricing import TierName

Timestamp: TypeAlias = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", description="UTC.", examples=["2026-11-21 05:23:00"])
]
FileId: TypeAlias = Annotated[
    str,
    Field(pattern="^file_[0-9A-Za-z]{22}$", description="Names the file.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
BatchId: TypeAlias = Annotated[
    str,
    Field(pattern="^batch_[0-9A-Za-z]{22}$", description="Names the batch.", examples=["batch_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
KeyId: TypeAlias = Annotated[
    str, Field(pattern="^key_[0-9A-Za-z]{22}$", description="Names the key.", examples=["key_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])
]
RequestId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^req_[0-9A-Za-z]{22}$",
        description="Names this request in the server's log.",
        examples=["req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
InputFormat: TypeAlias = Annotated[
    str, Field(description="The format that the file's content was found to have.", examples=["jpeg"])
]
OutputFormat: TypeAlias = Annotated[str, Field(description="The canonical name of the target.", examples=["webp"])]
Size: TypeAlias = Annotated[int, Field(ge=0, description="Bytes.", examples=[48213])]
OriginalSize: TypeAlias = Annotated[int, Field(ge=0, description="Bytes of what was sent.", examples=[48213])]
ProcessedSize: TypeAlias = Annotated[int, Field(ge=0, description="Bytes of the result.", examples=[20104])]
Reduction: TypeAlias = Annotated[
    float, Field(description="How much smaller the result is; negative where it is larger.", examples=[58.3])
]
DownloadUrl: TypeAlias = Annotated[
    str,
    Field(
        description="Where the result is fetched, with the key.",
        examples=["/api/v1/files/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7/download"],
    ),
]
Milliseconds: TypeAlias = Annotated[int, Field(ge=0, description="How long the conversion ran.", examples=[312])]
Count: TypeAlias = Annotated[int, Field(ge=0, examples=[3])]
Credits: TypeAlias = Annotated[int, Field(ge=0, examples=[49])]
Tier: TypeAlias = Annotated[
    TierName, Field(description="`paid` once credits have been bought, for good.", examples=["free"])
]
OriginalName: TypeAlias = Annotated[
    str, Field(description="The client's name for the file, without any folder.", examples=["photo.jpg"])
]
Extension: TypeAlias = Annotated[
    str,
    Field(description="The client's where it fits the content, else the format's usual one.", examples=["jpg"]),
]
Message: TypeAlias = Annotated[str, Field(description="A sentence for people.")]


class ErrorBody(TypedDict):
    """What a client is told of an error."""

    code: Annotated[str, Field(description="For programs.", examples=["invalid_parameter"])]
    message: Annotated[Message, Field(examples=["quality must be an integer from 1 to 100."])]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    param: NotRequired[Annotated[str, Field(description="The field at fault.", examples=["quality"])]]
    reason: NotRequired[Annotated[str, Field(description="Narrows the code.", examples=["out_of_range"])]]
    details: NotRequired[Annotated[dict[str, Any], Field(description="What is known beyond that.")]]


class Error(ErrorBody):
    """An error. Codes are never renamed; fields may be added."""

    request_id: RequestId


class ParameterDetails(TypedDict, total=False):
    """What a value should have been, and what it was."""

    min: int
    max: int
    count: int
    value: str
    page: int
    page_count: int
    max_files: int
    available: list[str]


class FileTypeDetails(TypedDict, total=False):
    """Which of several files it was, counted from 0, and what it is."""

    index: int
    input_format: str | None


class PairDetails(TypedDict, total=False):
    """The pair, and what can be had instead."""

    input_format: Annotated[str, Field(examples=["psd"])]
    output_format: Annotated[str, Field(examples=["xyz"])]
    available: Annotated[list[str], Field(examples=[["jpeg", "png"]])]


class SizeDetails(TypedDict, total=False):
    """The limit, and what came."""

    max_file_size: Annotated[int, Field(description="Bytes.", examples=[10_485_760])]
    max_bytes: int
    max_stored_bytes: int
    stored_bytes: int
    max_pixels: int
    pixels: int | None
    max_side: int
    width: int
    height: int
    max_frames: int
    frames: int
    max_pages: int
    pages: int
    max_total_pixels: int
    total_pixels: int
    max_scans: int
    scans: int
    max_elements: int


class JobDetails(TypedDict, total=False):
    """Where it failed."""

    step: Annotated[str, Field(examples=["jpeg -> raster"])]
    max_seconds: float
    exit_code: int | None


class CreditDetails(TypedDict):
    """The balance, and what the operation costs."""

    credits_remaining: Annotated[int, Field(examples=[0])]
    credits_required: Annotated[int, Field(examples=[1])]


class RateDetails(TypedDict):
    """Seconds to wait, as in `Retry-After`."""

    retry_after: Annotated[int, Field(ge=1, examples=[17])]


class RangeDetails(TypedDict):
    """Bytes of the file."""

    size: int


class ReadinessDetails(TypedDict, total=False):
    """What is wrong."""

    reasons: Annotated[list[str], Field(examples=[["the database does not answer"]])]
