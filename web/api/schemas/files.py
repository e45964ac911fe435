"""Files, and what was made of them."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from web.api.schemas.common import (
    BatchId,
    Count,
    DownloadUrl,
    ErrorBody,
    Extension,
    FileId,
    InputFormat,
    Message,
    Milliseconds,
    OriginalName,
    OriginalSize,
    OutputFormat,
    ProcessedSize,
    Reduction,
    Size,
    Timestamp,
)

FileState = Literal["pending", "processed"]


class Warning(TypedDict):
    """Something that the target could not hold."""

    code: Annotated[str, Field(examples=["alpha_flattened"])]
    message: Annotated[Message, Field(examples=["Transparency was laid on white."])]


class Failure(TypedDict):
    """Why the last conversion of a file failed. It was not charged."""

    code: Annotated[str, Field(examples=["processing_failed"])]
    message: Annotated[Message, Field(examples=["The picture data cannot be decoded."])]
    reason: Annotated[str | None, Field(examples=["corrupt_input"])]
    retryable: bool


class StoredFile(TypedDict):
    """A file that has been stored."""

    file_id: FileId
    extension: Extension
    size: Size
    original_name: OriginalName
    status: Annotated[FileState, Field(description="`processed` once it has been converted.", examples=["pending"])]
    input_format: InputFormat
    expires_at: Timestamp


class ConversionResult(TypedDict):
    """What was made of a file."""

    file_id: FileId
    input_format: InputFormat
    output_format: OutputFormat
    original_size: OriginalSize
    processed_size: ProcessedSize
    reduction_percent: Reduction
    download_url: DownloadUrl
    processing_time_ms: Milliseconds
    warnings: Annotated[list[Warning], Field(description="What the target could not hold.")]


class PdfResult(ConversionResult):
    """What was made of PDFs. `deleted_pages` stands there where pages were deleted."""

    original_name: OriginalName
    file_count: Count
    page_count: Annotated[int, Field(ge=1, description="Pages of the result.", examples=[7])]
    original_page_count: Annotated[int, Field(ge=1, description="Pages of what was sent.", examples=[10])]
    deleted_pages: NotRequired[Annotated[list[int], Field(description="Counted from 1.", examples=[[2, 5, 8]])]]


class FileStatus(StoredFile):
    """All that is known about a file; what is not known yet is null."""

    output_format: Annotated[str | None, Field(description="The canonical name of the target.", examples=["webp"])]
    original_size: OriginalSize
    processed_size: Annotated[int | None, Field(description="Bytes of the result.", examples=[20104])]
    reduction_percent: Annotated[float | None, Field(description="How much smaller the result is.", examples=[58.3])]
    download_url: DownloadUrl | None
    processing_time_ms: Annotated[int | None, Field(description="How long the conversion ran.", examples=[312])]
    warnings: Annotated[list[Warning], Field(description="What the target could not hold.")]
    batch_id: BatchId | None
    source_file_id: Annotated[FileId | None, Field(description="The file that this one was converted anew from.")]
    error: Annotated[Failure | None, Field(description="Why the last conversion failed, if it did.")]
    created_at: Timestamp
    processed_at: Timestamp | None


class DeletedFile(TypedDict):
    """A file that has been erased."""

    file_id: FileId
    deleted: Literal[True]


class NewBatch(TypedDict):
    """A batch that has just been made."""

    batch_id: BatchId
    output_format: OutputFormat
    status: Literal["created"]
    max_files: Annotated[int, Field(ge=1, description="How many files it can hold.", examples=[50])]
    created_at: Timestamp
    expires_at: Timestamp


class AddedFile(StoredFile):
    """A file that has been stored in a batch."""

    batch_id: BatchId
    total: Annotated[int, Field(ge=1, description="Files in the batch by now.", examples=[3])]


class BatchFile(TypedDict):
    """A file of a batch."""

    file_id: FileId
    original_name: OriginalName
    extension: Extension
    size: Size
    input_format: InputFormat
    status: Annotated[
        Literal["pending", "processed", "failed"],
        Field(description="`failed`: its last conversion failed; it can be tried again.", examples=["pending"]),
    ]
    download_url: DownloadUrl | None
    error: Annotated[Failure | None, Field(description="Why the last conversion failed, if it did.")]
    expires_at: Timestamp


class BatchStatus(TypedDict):
    """A batch and its files, in the order in which they came."""

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
    """A file of a batch that was converted, for one credit."""

    status: Literal["success"]
    result_file_id: Annotated[
        FileId, Field(description="Where the result is; another file than `file_id` if that was processed before.")
    ]


class BatchFailure(TypedDict):
    """A file of a batch that was not converted, and not charged."""

    file_id: Annotated[str, Field(description="As it was asked for.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])]
    status: Literal["failed"]
    download_url: None
    error: Annotated[ErrorBody, Field(description="Why it was not.")]


class BatchResult(TypedDict):
    """What was made of files of a batch, in the order of `file_ids`."""

    batch_id: BatchId
    results: Annotated[list[BatchSuccess | BatchFailure], Field(description="In the order of `file_ids`.")]
    total: Count
    successful: Count
    failed: Count
