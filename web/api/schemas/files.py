"""Responses about files, conversions and batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from engine.outcome import Outcome, WarningRecord, is_none
from storage.field_types import BatchId, Count, Cursor, FileId, Size, Timestamp
from storage.tables.batches import Batch
from storage.tables.files import File
from web.api.values import API, KIND, ErrorBody, Flat, Inline, Message


@dataclass(frozen=True)
class Failure:
    """The error of a file's last conversion, which was not charged."""

    code: Annotated[str, Field(examples=["processing_failed"])]
    message: Annotated[Message, Field(examples=["The image data cannot be decoded."])]
    reason: Annotated[str | None, Field(examples=["corrupt_input"])]
    retryable: bool


@dataclass(frozen=True)
class Result(Flat):
    """What the conversion of a file has made."""

    file: Inline[File]
    outcome: Inline[Outcome]

    @computed_field(description="Size reduction in percent. Negative if the result is larger.", examples=[58.3])
    @property
    def reduction_percent(self) -> float:
        return reduction_percent(self.file.original_size, self.outcome)

    @computed_field(
        description="Path to download the result. Needs the API key.",
        examples=["/api/v1/files/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7/download"],
    )
    @property
    def download_url(self) -> str:
        return f"{API}/files/{self.file.file_id}/download"


@dataclass(frozen=True)
class ConversionResult(Flat):
    """The result of a conversion."""

    result: Inline[Result]
    kind: Annotated[Literal["result"], Field(description=KIND)] = "result"


@dataclass(frozen=True)
class StoredFile(Flat):
    """A file and its conversion. Values that are not known yet are null."""

    file: Inline[File]
    result: Inline[Result | None]
    error: Annotated[Failure | None, Field(description="The error of the last conversion, if it failed.")]

    @computed_field(description="`processed` after a successful conversion.", examples=["pending"])
    @property
    def status(self) -> Literal["pending", "processed"]:
        return "processed" if self.result else "pending"

    @computed_field
    @property
    def size(self) -> Size:
        return self.file.original_size


@dataclass(frozen=True)
class BatchFile(StoredFile):
    """A file of a batch, with its result of the latest run that has converted it."""

    @computed_field
    @property
    def file_id(self) -> FileId:
        return self.file.file_id

    @computed_field(description="The file with the result.")
    @property
    def result_file_id(self) -> FileId | None:
        return None if self.result is None else self.result.file.file_id


@dataclass(frozen=True)
class FileList:
    """Stored files, newest first."""

    files: tuple[StoredFile, ...]
    next_cursor: Cursor


@dataclass(frozen=True)
class FileLink:
    """A link to a result, which needs no API key."""

    url: Annotated[
        str,
        Field(
            description="The URL for GET and HEAD. Must be kept as secret as the result.",
            examples=[
                "https://example.com/api/v1/links/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7.1795238640."
                "Zq3xKfX0v9yJm2Lw8Rt5Ub1Nc7Hd4Gs6Pa0Ei3Oy2Q"
            ],
        ),
    ]
    expires_at: Timestamp


def reduction_percent(original_size: int, outcome: Outcome) -> float:
    """The reduction of the size in percent. Negative if the result is larger."""
    return round((1 - outcome.processed_size / original_size) * 100, 1)


@dataclass(frozen=True)
class PlannedResult:
    """A result that was not made, because of `dry_run`, as far as the file's header shows it."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]
    path: Annotated[list[str], Field(description="The steps.", examples=[["jpeg -> raster", "raster -> webp"]])]
    losses: Annotated[list[str], Field(description="As in `GET /formats/{input}/{output}`.", examples=[["detail"]])]
    options: Annotated[
        dict[str, Any], Field(description="The options with their values or defaults.", examples=[{"quality": 80}])
    ]
    credits: Annotated[int, Field(description="The price of the conversion.", examples=[1])]
    width: Annotated[
        Count | None, Field(description="Width of the result; null for vectors and documents.", examples=[1600])
    ] = None
    height: Annotated[
        Count | None, Field(description="Height of the result; null for vectors and documents.", examples=[1200])
    ] = None
    pages: Annotated[Count | None, Field(description="Pages or frames of the result.", examples=[1])] = None
    container: Annotated[
        Literal["zip"] | None, Field(description="Set if the result would be an archive.", examples=[None])
    ] = None
    file_count: Annotated[Count, Field(ge=1, description="Files in the `container`.", examples=[1])] = 1
    warnings: Annotated[
        tuple[WarningRecord, ...], Field(description="What the result would lose, as far as the header shows it.")
    ] = ()


@dataclass(frozen=True)
class PlannedConversion(Flat):
    """A conversion that was not run, because of `dry_run`, and what its result would be, as far as the file's header
    shows it."""

    result: Inline[PlannedResult]
    outputs: Annotated[
        tuple[PlannedResult, ...] | None,
        Field(description="The results, in the order of the field `outputs`.", exclude_if=is_none),
    ] = None

    @classmethod
    def of_several(cls, outputs: Sequence[PlannedResult], output_format: str) -> "PlannedConversion":
        """The conversion whose results are in a ZIP. Its fields are sums, or have the values of the first output."""
        whole = replace(
            outputs[0],
            output_format=output_format,
            credits=sum(one.credits for one in outputs),
            pages=sum(one.pages or 1 for one in outputs),
            container="zip",
            file_count=len(outputs),
            warnings=tuple(dict.fromkeys(warning for one in outputs for warning in one.warnings)),
        )
        return cls(whole, tuple(outputs))


@dataclass(frozen=True)
class DeletedFile:
    """A deleted file."""

    file_id: FileId
    deleted: Literal[True] = True


@dataclass(frozen=True)
class BatchStatus(Flat):
    """A batch and its files, in upload order. Each counts by the latest run that has converted it.

    `pending` excludes files whose last conversion failed.
    """

    batch: Inline[Batch]
    files: tuple[BatchFile, ...]
    max_files: Annotated[int, Field(ge=1, description="Maximum number of files.", examples=[50])]

    @computed_field(
        description="`completed`: all files are processed; `partial`: some; `failed`: none.", examples=["created"]
    )
    @property
    def status(self) -> Literal["created", "processing", "completed", "partial", "failed"]:
        if self.batch.running:
            return "processing"
        if not self.processed and not self.failed:
            return "created"
        if self.processed == self.total:
            return "completed"
        return "partial" if self.processed else "failed"

    @computed_field
    @property
    def total(self) -> Count:
        return len(self.files)

    @computed_field
    @property
    def pending(self) -> Count:
        return self.total - self.processed - self.failed

    @computed_field
    @property
    def processed(self) -> Count:
        return sum(file.result is not None and file.error is None for file in self.files)

    @computed_field
    @property
    def failed(self) -> Count:
        return sum(file.error is not None for file in self.files)


@dataclass(frozen=True)
class AddedFile(Flat):
    """A file that was added to a batch."""

    file: Inline[StoredFile]
    total: Annotated[int, Field(ge=1, description="Number of files in the batch.", examples=[3])]


@dataclass(frozen=True)
class BatchSuccess(Flat):
    """A converted file of a batch. It cost one credit."""

    result: Inline[ConversionResult]
    file_id: Annotated[FileId, Field(description="The requested file.")]
    result_file_id: Annotated[
        FileId, Field(description="The file of the result. Differs from `file_id` if that was processed before.")
    ]
    status: Literal["success"] = "success"


@dataclass(frozen=True)
class BatchFailure:
    """A file of a batch that was not converted and not charged."""

    file_id: Annotated[str, Field(description="The requested id.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])]
    error: Annotated[ErrorBody, Field(description="Why the conversion failed.")]
    status: Literal["failed"] = "failed"
    download_url: Annotated[str | None, Field(description="Always null.", examples=[None])] = None


@dataclass(frozen=True)
class BatchResult:
    """The results of a batch conversion."""

    batch_id: BatchId
    results: Annotated[list[BatchSuccess | BatchFailure], Field(description="In the order of `file_ids`.")]
    total: Count
    successful: Count
    failed: Count
    kind: Annotated[Literal["result"], Field(description=KIND)] = "result"
