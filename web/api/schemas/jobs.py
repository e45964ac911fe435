"""Responses about jobs: requests that are processed in the background."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from storage.field_types import Count, JobId, Timestamp, format_timestamp
from storage.tables import jobs
from storage.tables.jobs import Status
from web.api.values import KIND, ErrorBody, RequestId


class JobFailure(ErrorBody):
    """Why a job has failed. It was not charged."""

    request_id: Annotated[RequestId, Field(description="The id of the request that was accepted.")]


class Job(TypedDict):
    """A request that is processed in the background. Values that are not known yet are null."""

    job_id: JobId
    status: Annotated[Status, Field(examples=["processing"])]
    operation: Annotated[str, Field(description="As in the usage report.", examples=["convert"])]
    input_format: Annotated[
        str | None, Field(description="Null for a batch, and until a `url` is fetched.", examples=["jpeg"])
    ]
    output_format: Annotated[str, Field(examples=["webp"])]
    test: Annotated[bool, Field(description="Whether a test key was used.", examples=[False])]
    tag: Annotated[str | None, Field(description="The field `tag` of the request.", examples=["order-17"])]
    progress: Annotated[
        float | None, Field(ge=0, le=1, description="The share of the files of a batch that are done.", examples=[0.5])
    ]
    position: Annotated[
        int | None, Field(ge=0, description="Jobs of the account ahead of this one, while it is queued.", examples=[3])
    ]
    attempts: Annotated[Count, Field(description="How often it was started; at most 3 times.", examples=[1])]
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    expires_at: Annotated[Timestamp | None, Field(description="When an ended job is deleted.")]
    result: Annotated[
        dict[str, Any] | None,
        Field(
            description="What the JSON response of the request has as `data`, once the job is completed.",
            examples=[{"file_id": "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7", "processed_size": 20104}],
        ),
    ]
    error: JobFailure | None
    webhook_url: Annotated[
        str | None, Field(description="The field `webhook_url` of the request.", examples=["https://app.example/hook"])
    ]
    kind: Annotated[Literal["job"], Field(description=KIND)]


class EndedJob(Job):
    """A job that was cancelled, or deleted with its result because it had ended."""

    deleted: Annotated[bool, Field(description="Whether the job was deleted.", examples=[False])]


class JobList(TypedDict):
    """Jobs, newest first."""

    jobs: list[Job]
    next_cursor: Annotated[
        str | None, Field(description="For the query of the next page; null on the last one.", examples=[None])
    ]


def describe_job(job: jobs.Job) -> dict[str, Any]:
    """A job as the API describes it."""
    ended = {"completed": 1.0}.get(job.status)
    result = _loaded(job.result) if job.status == "completed" else None
    return {
        "job_id": job.job_id,
        "status": job.status,
        "operation": job.operation,
        "input_format": job.input_format or (result or {}).get("input_format"),
        "output_format": job.output_format,
        "test": bool(job.test),  # SQLite returns a number
        "tag": job.tag,
        "progress": ended if job.total is None else round(job.done / max(job.total, 1), 3),
        "position": job.position,
        "attempts": job.attempts,
        **{
            name: None if time is None else format_timestamp(time)
            for name in ("created_at", "started_at", "finished_at", "expires_at")
            for time in (getattr(job, name),)
        },
        "result": result,
        "error": _loaded(job.error),
        "webhook_url": job.webhook_url,
        "kind": "job",
    }


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
