"""Responses about files, conversions and batches."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from storage.field_types import BatchId, Count, FileId, Size
from web.api.schemas.common import (
    DownloadUrl,
    ErrorBody,
    Extension,
    InputFormat,
    Message,
    Milliseconds,
    OriginalName,
    OriginalSize,
    OutputFormat,
    ProcessedSize,
    Reduction,
    Timestamp,
)

FileState = Literal["pending", "processed"]


class Warning(TypedDict):
    """A loss of fidelity: something that the target format cannot hold."""

    code: Annotated[str, Field(examples=["alpha_flattened"])]
    message: Annotated[Message, Field(examples=["Transparency was replaced by the background color."])]


class Failure(TypedDict):
    """The error of a file's last conversion, which was not charged."""

    code: Annotated[str, Field(examples=["processing_failed"])]
    message: Annotated[Message, Field(examples=["The picture data cannot be decoded."])]
    reason: Annotated[str | None, Field(examples=["corrupt_input"])]
    retryable: bool


class StoredFile(TypedDict):
    """A stored file."""

    file_id: FileId
    extension: Extension
    size: Size
    original_name: OriginalName
    status: Annotated[FileState, Field(description="`processed` after a successful conversion.", examples=["pending"])]
    input_format: InputFormat
    expires_at: Timestamp


Container = Annotated[Literal["zip"], Field(description="Present if the result has several files, in a ZIP.")]
FileCount = Annotated[
    int, Field(ge=1, description="Files in the result; for PDF operations, files that were sent.", examples=[1])
]


class ConversionResult(TypedDict):
    """The result of a conversion."""

    file_id: FileId
    input_format: InputFormat
    output_format: OutputFormat
    original_size: OriginalSize
    processed_size: ProcessedSize
    reduction_percent: Reduction
    download_url: DownloadUrl
    processing_time_ms: Milliseconds
    warnings: Annotated[list[Warning], Field(description="What the target format cannot hold.")]
    container: Container | None
    file_count: FileCount
    quality_used: Annotated[int | None, Field(description="The quality that `max_bytes` led to.", examples=[72])]


class PlannedConversion(TypedDict):
    """A conversion that was not run, because of `dry_run`. Sizes and counts that the header does not have are null."""

    input_format: InputFormat
    output_format: OutputFormat
    path: Annotated[list[str], Field(description="The steps.", examples=[["jpeg -> raster", "raster -> webp"]])]
    losses: Annotated[list[str], Field(description="As in `GET /formats/{input}/{output}`.", examples=[["detail"]])]
    options: Annotated[
        dict[str, Any], Field(description="The options with their values or defaults.", examples=[{"quality": 80}])
    ]
    credits: Annotated[int, Field(description="The price of the conversion.", examples=[1])]
    width: Annotated[int | None, Field(description="Of the first page, in pixels.", examples=[1600])]
    height: Annotated[int | None, Field(description="Of the first page, in pixels.", examples=[1200])]
    pages: Annotated[int | None, Field(description="Number of pages or frames.", examples=[1])]


class PdfResult(ConversionResult):
    """The result of a PDF operation. `deleted_pages` is present if pages were deleted."""

    original_name: OriginalName
    page_count: Annotated[int, Field(ge=1, description="Pages of the result.", examples=[7])]
    original_page_count: Annotated[int, Field(ge=1, description="Pages of the input.", examples=[10])]
    deleted_pages: NotRequired[Annotated[list[int], Field(description="Counted from 1.", examples=[[2, 5, 8]])]]


class FileStatus(StoredFile):
    """A file and its conversion. Values that are not known yet are null."""

    output_format: Annotated[str | None, Field(description="The canonical name of the target.", examples=["webp"])]
    original_size: OriginalSize
    processed_size: Annotated[int | None, Field(description="Size of the result in bytes.", examples=[20104])]
    reduction_percent: Annotated[float | None, Field(description="Size reduction in percent.", examples=[58.3])]
    download_url: DownloadUrl | None
    processing_time_ms: Annotated[
        int | None, Field(description="Duration of the conversion in milliseconds.", examples=[312])
    ]
    warnings: Annotated[list[Warning], Field(description="What the target format cannot hold.")]
    container: Container | None
    file_count: Annotated[int | None, Field(description="Files in the result.", examples=[1])]
    quality_used: Annotated[int | None, Field(description="The quality that `max_bytes` led to.", examples=[72])]
    batch_id: BatchId | None
    source_file_id: Annotated[FileId | None, Field(description="The file that was converted again to make this one.")]
    error: Annotated[Failure | None, Field(description="The error of the last conversion, if it failed.")]
    created_at: Timestamp
    processed_at: Timestamp | None


class DeletedFile(TypedDict):
    """A deleted file."""

    file_id: FileId
    deleted: Literal[True]


class NewBatch(TypedDict):
    """A new batch."""

    batch_id: BatchId
    output_format: OutputFormat
    status: Literal["created"]
    max_files: Annotated[int, Field(ge=1, description="Maximum number of files.", examples=[50])]
    created_at: Timestamp
    expires_at: Timestamp


class AddedFile(StoredFile):
    """A file that was added to a batch."""

    batch_id: BatchId
    total: Annotated[int, Field(ge=1, description="Number of files in the batch.", examples=[3])]


class BatchFile(TypedDict):
    """A file of a batch."""

    file_id: FileId
    original_name: OriginalName
    extension: Extension
    size: Size
    input_format: InputFormat
    status: Annotated[
        Literal["pending", "processed", "failed"],
        Field(description="`failed`: the last conversion failed; it can be repeated.", examples=["pending"]),
    ]
    download_url: DownloadUrl | None
    error: Annotated[Failure | None, Field(description="The error of the last conversion, if it failed.")]
    expires_at: Timestamp


class BatchStatus(TypedDict):
    """A batch and its files, in upload order."""

    batch_id: BatchId
    output_format: OutputFormat
    status: Annotated[
        Literal["created", "processing", "completed", "partial", "failed"],
        Field(
            description="`completed`: all files are processed; `partial`: some; `failed`: none.", examples=["created"]
        ),
    ]
    total: Count
    pending: Count
    processed: Count
    failed: Count
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp
    files: list[BatchFile]


class BatchSuccess(ConversionResult):
    """A converted file of a batch. It cost one credit."""

    status: Literal["success"]
    result_file_id: Annotated[
        FileId, Field(description="The file of the result. Differs from `file_id` if that was processed before.")
    ]


class BatchFailure(TypedDict):
    """A file of a batch that was not converted and not charged."""

    file_id: Annotated[str, Field(description="The requested id.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])]
    status: Literal["failed"]
    download_url: Annotated[str | None, Field(description="Always null.", examples=[None])]
    error: Annotated[ErrorBody, Field(description="Why the conversion failed.")]


class BatchResult(TypedDict):
    """The results of a batch conversion."""

    batch_id: BatchId
    results: Annotated[list[BatchSuccess | BatchFailure], Field(description="In the order of `file_ids`.")]
    total: Count
    successful: Count
    failed: Count
