"""Errors: what all of them have, and the details of each code."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from web.shapes.values import Message, RequestId


class Told(TypedDict):
    """What a client is told of an error."""

    code: Annotated[str, Field(description="For programs.", examples=["invalid_parameter"])]
    message: Annotated[Message, Field(examples=["quality must be an integer from 1 to 100."])]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    param: NotRequired[Annotated[str, Field(description="The field at fault.", examples=["quality"])]]
    reason: NotRequired[Annotated[str, Field(description="Narrows the code.", examples=["out_of_range"])]]
    details: NotRequired[Annotated[dict[str, Any], Field(description="What is known beyond that.")]]


class Problem(Told):
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
