"""Serializers: storage values as schemas of the API."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.executor import Inspection, JobResult
from engine.options import OptionValues, PageRanges
from engine.planner import Plan
from storage.tables import batches
from storage.tables.batches import Batch
from storage.tables.files import Failure, File
from storage.tables.usage import DayUsage
from web.api.schemas import files as schemas
from web.api.schemas.files import BatchStatus, NewBatch
from web.api.times import timestamp
from web.services.conversion_request import ConversionRequest

API = "/api/v1"
"""The path prefix of the API."""


def download_url(file_id: str) -> str:
    """The path of the download of a result."""
    return f"{API}/files/{file_id}/download"


def stored_file(file: File) -> schemas.StoredFile:
    """Serializes a stored file."""
    return {
        "file_id": file.id,
        "extension": file.extension,
        "size": file.original_size,
        "original_name": file.original_name,
        "status": file.status,
        "input_format": file.input_format,
        "expires_at": timestamp(file.expires_at),
    }


def conversion_result(file: File) -> schemas.ConversionResult:
    """Serializes the result of a processed file."""
    result = file.converted
    assert result is not None
    return {
        "file_id": file.id,
        "input_format": file.input_format,
        "output_format": result.output_format,
        "original_size": file.original_size,
        "processed_size": result.size,
        "reduction_percent": round((1 - result.size / file.original_size) * 100, 1),
        "download_url": download_url(file.id),
        "processing_time_ms": round(result.seconds * 1000),
        "warnings": [{"code": code, "message": message} for code, message in result.warnings],
        "container": result.container,
        "file_count": result.file_count,
        "quality_used": result.quality_used,
    }


def planned_conversion(plan: Plan, options: OptionValues, inspection: Inspection) -> schemas.PlannedConversion:
    """Serializes a conversion that was not run. Omits the values of secret options."""
    return {
        "input_format": plan.source.name,
        "output_format": plan.target.name,
        "path": list(plan.step_names),
        "losses": list(plan.losses),
        "options": plan.effective_options(options),
        "credits": CREDITS_PER_CONVERSION,
        "width": inspection.width,
        "height": inspection.height,
        "pages": inspection.pages,
    }


def file_status(file: File) -> schemas.FileStatus:
    """Serializes the state of a file. Fields of a missing result are None."""
    result = conversion_result(file) if file.converted else None
    return {
        **stored_file(file),
        "output_format": result and result["output_format"],
        "original_size": file.original_size,
        "processed_size": result and result["processed_size"],
        "reduction_percent": result and result["reduction_percent"],
        "download_url": result and result["download_url"],
        "processing_time_ms": result and result["processing_time_ms"],
        "warnings": result["warnings"] if result else [],
        "container": result and result["container"],
        "file_count": result and result["file_count"],
        "quality_used": result and result["quality_used"],
        "batch_id": file.batch,
        "source_file_id": file.source_file,
        "error": _failure(file.failure),
        "created_at": timestamp(file.created_at),
        "processed_at": timestamp(file.processed_at),
    }


def new_batch(batch: Batch, max_files: int) -> NewBatch:
    """Serializes a new batch."""
    return {
        "batch_id": batch.id,
        "output_format": batch.output_format,
        "status": "created",
        "max_files": max_files,
        "created_at": timestamp(batch.created_at),
        "expires_at": timestamp(batch.expires_at),
    }


def batch_status(batch: Batch, files: Sequence[File]) -> BatchStatus:
    """Serializes a batch and its files."""
    counts = batches.count(files)
    return {
        "batch_id": batch.id,
        "output_format": batch.output_format,
        "status": batches.status(batch, counts),
        "total": counts.total,
        "pending": counts.pending,
        "processed": counts.processed,
        "failed": counts.failed,
        "created_at": timestamp(batch.created_at),
        "updated_at": timestamp(batch.updated_at),
        "expires_at": timestamp(batch.expires_at),
        "files": [
            {
                **stored_file(file),
                "status": "failed" if file.failure else file.status,
                "download_url": download_url(file.id) if file.converted else None,
                "error": _failure(file.failure),
            }
            for file in files
        ],
    }


def tool_counts(request: ConversionRequest, result: JobResult) -> Mapping[str, Any]:
    """The numbers of files and pages of a tool's job."""
    pages, original_count = request.options.get("pages"), sum(result.input_pages)
    return {
        "original_name": request.original_name,
        "file_count": len(request.uploads),
        "page_count": result.pages,
        "original_page_count": original_count,
        **({"deleted_pages": _page_numbers(str(pages), original_count)} if pages else {}),
    }


def _page_numbers(pages: str, page_count: int) -> list[int]:
    return [index + 1 for index in PageRanges.parse(pages).indexes(page_count)]


def usage_csv(days: Sequence[DayUsage]) -> str:
    """The usage by day as CSV with a header row."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, [field.name for field in fields(DayUsage)])
    table.writeheader()
    table.writerows(asdict(day) for day in days)
    return text.getvalue()


def _failure(failure: Failure | None) -> schemas.Failure | None:
    if failure is None:
        return None
    return {"code": failure.code, "message": failure.message, "reason": failure.reason, "retryable": failure.retryable}
