"""Batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from web.shapes.errors import Told
from web.shapes.files import ConversionResult, Fault, StoredFile
from web.shapes.values import (
    BatchId,
    Count,
    DownloadUrl,
    Extension,
    FileId,
    InputFormat,
    OriginalName,
    OutputFormat,
    Size,
    Timestamp,
)


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
    error: Annotated[Fault | None, Field(description="Why the last conversion failed, if it did.")]
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


class Converted(ConversionResult):
    """A file of a batch that was converted, for one credit."""

    status: Literal["success"]
    result_file_id: Annotated[
        FileId, Field(description="Where the result is; another file than `file_id` if that was processed before.")
    ]


class Failed(TypedDict):
    """A file of a batch that was not converted, and not charged."""

    file_id: Annotated[str, Field(description="As it was asked for.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])]
    status: Literal["failed"]
    download_url: None
    error: Annotated[Told, Field(description="Why it was not.")]


class BatchResult(TypedDict):
    """What was made of files of a batch, in the order of `file_ids`."""

    batch_id: BatchId
    results: Annotated[list[Converted | Failed], Field(description="In the order of `file_ids`.")]
    total: Count
    successful: Count
    failed: Count
