"""Where the API stands below the service's address."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from engine.executor import JobResult as JobDone
from storage import batches
from storage.batches import Batch
from storage.files import Failure, File
from storage.usage import DayUsage
from web.api.schemas import files as shapes
from web.api.schemas.files import BatchStatus, NewBatch
from web.api.times import timestamp
from web.services.conversion_request import ConversionRequest

API = "/api/v1"


def download_url(file_id: str) -> str:
    """The path at which a processed file can be fetched."""
    return f"{API}/files/{file_id}/download"


def stored_file(file: File) -> shapes.StoredFile:
    """A file that has just been stored."""
    return {
        "file_id": file.id,
        "extension": file.extension,
        "size": file.original_size,
        "original_name": file.original_name,
        "status": file.status,
        "input_format": file.input_format,
        "expires_at": timestamp(file.expires_at),
    }


def conversion_result(file: File) -> shapes.ConversionResult:
    """What was made of a processed file."""
    made = file.converted
    assert made is not None
    return {
        "file_id": file.id,
        "input_format": file.input_format,
        "output_format": made.output_format,
        "original_size": file.original_size,
        "processed_size": made.size,
        "reduction_percent": round((1 - made.size / file.original_size) * 100, 1),
        "download_url": download_url(file.id),
        "processing_time_ms": round(made.seconds * 1000),
        "warnings": [{"code": code, "message": message} for code, message in made.warnings],
    }


def file_status(file: File) -> shapes.FileStatus:
    """All that is known about a file; what is not known yet is None."""
    made = conversion_result(file) if file.converted else None
    return {
        **stored_file(file),
        "output_format": made and made["output_format"],
        "original_size": file.original_size,
        "processed_size": made and made["processed_size"],
        "reduction_percent": made and made["reduction_percent"],
        "download_url": made and made["download_url"],
        "processing_time_ms": made and made["processing_time_ms"],
        "warnings": made["warnings"] if made else [],
        "batch_id": file.batch,
        "source_file_id": file.source_file,
        "error": _fault(file.failure),
        "created_at": timestamp(file.created_at),
        "processed_at": timestamp(file.processed_at),
    }


def new_batch(batch: Batch, max_files: int) -> NewBatch:
    """A batch that has just been made."""
    return {
        "batch_id": batch.id,
        "output_format": batch.output_format,
        "status": "created",
        "max_files": max_files,
        "created_at": timestamp(batch.created_at),
        "expires_at": timestamp(batch.expires_at),
    }


def batch_status(batch: Batch, files: Sequence[File]) -> BatchStatus:
    """A batch and its files."""
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
                "error": _fault(file.failure),
            }
            for file in files
        ],
    }


def tool_counts(order: ConversionRequest, done: JobDone) -> Mapping[str, Any]:
    """What a tool counted; nothing for a plain conversion."""
    if order.tool is None:
        return {}
    pages, before = order.options.pages, sum(done.input_pages)
    return {
        "original_name": order.original_name,
        "file_count": len(order.uploads),
        "page_count": done.pages,
        "original_page_count": before,
        **({"deleted_pages": [page + 1 for page in pages.among(before)]} if pages else {}),
    }


def usage_csv(days: Sequence[DayUsage]) -> str:
    """Usage by day as a table."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, [field.name for field in fields(DayUsage)])
    table.writeheader()
    table.writerows(asdict(day) for day in days)
    return text.getvalue()


def _fault(fault: Failure | None) -> shapes.Failure | None:
    if fault is None:
        return None
    return {"code": fault.code, "message": fault.message, "reason": fault.reason, "retryable": fault.retryable}
