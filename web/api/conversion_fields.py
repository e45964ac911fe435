"""Fields of requests that convert files, and of requests about jobs."""

import unicodedata
from typing import Annotated, get_args

from pydantic import Field
from pydantic_core import PydanticCustomError

from storage.tables.jobs import Status
from web.api.fields import (
    CONTROL,
    IdempotencyHeader,
    RequestModel,
    field_type,
    integer,
    matching,
    read_boolean_value,
    read_text,
)

_TAG_LENGTH = 100  # characters
_WEBHOOK_URL = r"https?://[^\s/?#@]{1,255}(/[^\s#]{0,1700})?"


def _tag(value: object) -> str:
    """A short text of the client."""
    text = read_text(value)
    if any(unicodedata.category(character) in CONTROL for character in text):
        raise PydanticCustomError("malformed", "must not contain control characters.")
    if not 1 <= len(text) <= _TAG_LENGTH:
        raise PydanticCustomError(
            "out_of_range", "must have {min} to {max} characters.", {"min": 1, "max": _TAG_LENGTH}
        )
    return text


def _job_status(value: object) -> str:
    known = get_args(Status)
    if value not in known:
        raise PydanticCustomError("unknown", f"must be one of {', '.join(known)}.", {"available": [*known]})
    return str(value)


def _file_ids(value: object) -> tuple[str, ...]:
    """The ids in the order of the request. Their existence is not checked."""
    if not isinstance(value, list) or not all(isinstance(file_id, str) for file_id in value):
        raise PydanticCustomError("malformed", "must be a list of strings.")
    return tuple(value)


class ConversionFields(RequestModel):
    """POST /batch."""

    output_format: Annotated[
        str,
        matching("[A-Za-z0-9]{1,20}", 'a format name, for example "jpeg"'),
        Field(
            description="The target format. Case-insensitive; the aliases `jpg`, `tif` and `heif` are accepted. "
            "`GET /formats` lists the formats.",
            examples=["webp"],
        ),
    ]


class JobFields(RequestModel):
    """Fields of all requests that can be processed in the background."""

    tag: (
        Annotated[
            str,
            field_type(_tag, Annotated[str, Field(min_length=1, max_length=_TAG_LENGTH)]),
            Field(description="A text of yours, by which you find the job.", examples=["order-17"]),
        ]
        | None
    ) = None
    webhook_url: (
        Annotated[
            str,
            matching(_WEBHOOK_URL, "an http or https URL"),
            Field(
                description="Processes the request in the background, and sends the ended job to this URL.",
                examples=["https://example.org/hook"],
            ),
        ]
        | None
    ) = None


class FileConversionFields(ConversionFields, JobFields):
    """POST /files/{file_id}/convert."""


class DirectConversionFields(ConversionFields, JobFields):
    """POST /convert."""

    dry_run: Annotated[
        bool,
        field_type(read_boolean_value, bool),
        Field(
            description="Only looks at the header of the file: the response describes the conversion. Costs nothing.",
            examples=[False],
        ),
    ] = False


class BatchConversionFields(ConversionFields, JobFields):
    """POST /batch/{batch_id}/convert."""

    file_ids: Annotated[
        tuple[str, ...],
        field_type(_file_ids, Annotated[list[str], Field(min_length=1)]),
        Field(
            description="The files of the batch to convert. Duplicates are ignored.",
            examples=[["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]],
        ),
    ]


class PreferHeader(RequestModel):
    """The header by which clients choose how they get a response (RFC 7240)."""

    prefer: (
        Annotated[
            str,
            field_type(read_text, str),
            Field(
                description="`respond-async`: process the request in the background, and respond with the job. "
                "`wait=N`: wait for the end of the job, for at most N seconds (60); the response then has status 200.",
                examples=["respond-async, wait=10"],
            ),
        ]
        | None
    ) = Field(default=None, alias="Prefer")


class ChargeHeaders(IdempotencyHeader, PreferHeader):
    """The headers of requests that convert files."""


class JobsQuery(RequestModel):
    """GET /jobs."""

    status: (
        Annotated[
            Status,
            field_type(_job_status, Annotated[str, Field(json_schema_extra={"enum": [*get_args(Status)]})]),
            Field(description="Only jobs with this status.", examples=["completed"]),
        ]
        | None
    ) = None
    tag: (
        Annotated[str, field_type(_tag, str), Field(description="Only jobs with this tag.", examples=["order-17"])]
        | None
    ) = None
    limit: Annotated[int, integer(1, 100), Field(description="Jobs of a page.", examples=[50])] = 50
    cursor: (
        Annotated[
            str,
            matching("[0-9]{1,19}", "the `next_cursor` of a page"),
            Field(description="The `next_cursor` of the previous page.", examples=["1795238640000000000"]),
        ]
        | None
    ) = None
