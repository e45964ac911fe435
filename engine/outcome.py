"""The outcome of a conversion: one value, which the pipeline measures, tasks send, rows store and the API returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, WithJsonSchema

Text: TypeAlias = Annotated[str, Field(pattern=r"^\P{Cc}*$"), WithJsonSchema({"type": "string"}, mode="serialization")]
"""Text without control characters, as replies of tasks contain it."""

Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 31)]
"""A number of pages, frames, files or pixels."""

Size: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A number of bytes."""


def is_none(value: object) -> bool:
    """Whether JSON leaves a value out."""
    return value is None


@dataclass(frozen=True)
class WarningRecord:
    """A loss of fidelity: something that the target format cannot hold."""

    code: Annotated[Text, Field(examples=["alpha_flattened"])]
    message: Annotated[
        Text, Field(description="A sentence for people.", examples=["Transparency was replaced by the background."])
    ]


@dataclass(frozen=True)
class OutputResult:
    """One of several results, which are in a ZIP. The caller of the task sets `media_type` and `download_url`."""

    output_format: Annotated[Text, Field(description="The canonical name of the target format.", examples=["webp"])]
    processed_size: Annotated[Size, Field(description="Size of the result in bytes.", examples=[20104])]
    filename: Annotated[Text, Field(description="The name of the result in the ZIP.", examples=["photo-01.webp"])]
    offset: Annotated[Size, Field(description="Where the result begins in the ZIP, in bytes.", examples=[43])]
    media_type: Annotated[Text, Field(description="The media type of the result.", examples=["image/webp"])] = ""
    warnings: Annotated[tuple[WarningRecord, ...], Field(description="What the target format cannot hold.")] = ()
    container: Annotated[
        Literal["zip"] | None, Field(description="Set if the result is an archive of its pages.", examples=[None])
    ] = None
    file_count: Annotated[Count, Field(ge=1, description="Files in the `container`.", examples=[1])] = 1
    width: Annotated[Count | None, Field(description="Width in pixels; null for vectors.", examples=[1600])] = None
    height: Annotated[Count | None, Field(description="Height in pixels; null for vectors.", examples=[1200])] = None
    pages: Annotated[Count | None, Field(description="Pages or frames.", examples=[1])] = None
    quality_used: Annotated[
        Count | None, Field(le=100, description="The quality that `max_bytes` led to.", examples=[72])
    ] = None

    download_url: Annotated[
        Text | None,
        Field(
            description="Path to download the result. Needs the API key.",
            examples=["/api/v1/files/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7/download?output=1"],
            exclude_if=is_none,
        ),
    ] = None

    @classmethod
    def of(cls, outcome: Outcome, filename: str, offset: int) -> OutputResult:
        """The result with this outcome, as an entry of a ZIP."""
        shared = {one.name for one in fields(outcome)} & {one.name for one in fields(cls)}
        return cls(**{name: getattr(outcome, name) for name in shared} | {"filename": filename, "offset": offset})


@dataclass(frozen=True)
class Outcome:
    """What a conversion resulted in. Values that do not apply are None; JSON leaves these out if only tools have them.

    The caller of the task sets `media_type`, `filename` and `processing_time_ms`, which a task does not know.
    """

    output_format: Annotated[Text, Field(description="The canonical name of the target format.", examples=["webp"])]
    processed_size: Annotated[Size, Field(description="Size of the result in bytes.", examples=[20104])]
    media_type: Annotated[Text, Field(description="The media type of the result.", examples=["image/webp"])] = ""
    filename: Annotated[Text, Field(description="The name of the result.", examples=["photo.webp"])] = ""
    processing_time_ms: Annotated[
        Size, Field(description="Duration of the conversion in milliseconds.", examples=[312])
    ] = 0
    warnings: Annotated[tuple[WarningRecord, ...], Field(description="What the target format cannot hold.")] = ()
    container: Annotated[
        Literal["zip"] | None, Field(description="Set if the result is an archive of the files.", examples=[None])
    ] = None
    file_count: Annotated[
        Count, Field(ge=1, description="Files in the `container`; without one, files that were sent.", examples=[1])
    ] = 1
    width: Annotated[
        Count | None,
        Field(description="Width of the first image in pixels; null for vectors and documents.", examples=[1600]),
    ] = None
    height: Annotated[
        Count | None,
        Field(description="Height of the first image in pixels; null for vectors and documents.", examples=[1200]),
    ] = None
    pages: Annotated[Count | None, Field(description="Pages or frames, of all files.", examples=[1])] = None
    quality_used: Annotated[
        Count | None, Field(le=100, description="The quality that `max_bytes` led to.", examples=[72])
    ] = None
    page_count: Annotated[
        Count | None, Field(description="Pages of the result of a tool.", examples=[7], exclude_if=is_none)
    ] = None
    original_page_count: Annotated[
        Count | None, Field(description="Pages of all files that a tool received.", examples=[10], exclude_if=is_none)
    ] = None
    deleted_pages: Annotated[
        tuple[Count, ...] | None,
        Field(description="Deleted pages, counted from 1.", examples=[[2, 5, 8]], exclude_if=is_none),
    ] = None
    outputs: Annotated[
        tuple[OutputResult, ...] | None,
        Field(description="The results in the ZIP, in the order of the field `outputs`.", exclude_if=is_none),
    ] = None
