"""The fields of requests: one model per request.

Validation, error messages, the OpenAPI document and the documentation pages are derived from these models.
"""

import re
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, get_args

from email_validator import EmailNotValidError, validate_email
from pydantic import Field
from pydantic_core import PydanticCustomError

from config.pricing import DAY, DEFAULT_PACKS, TEST_CONVERSIONS
from storage.database.pages import CURSOR
from storage.tables.api_keys import MAX_GRACE, Mode
from storage.tables.jobs import Status
from storage.tables.webhooks import EVENTS, Event
from web.api.errors import InvalidParameter
from web.api.field_types import URL, RequestModel, boolean, field_type, integer, matching, one_of, string
from web.api.job_fields import CONTROL, JobFields, PreferHeader, Tag
from web.api.output_fields import MAX_OUTPUTS, ConversionFields, TargetFields
from web.api.url_fields import ExportFields

MAX_ARCHIVE = 1000
"""Results of an archive."""

_EMAIL_LENGTH = 254  # characters
_NAME_LENGTH = range(2, 101)  # characters
_PRINTED = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"  # the same for JSON Schema
_NAME = rf"^\s*[^\s{_PRINTED}][^{_PRINTED}]{{0,98}}[^\s{_PRINTED}]\s*$"


def _email(value: object) -> str:
    """A well-formed email address with its domain in lower-case ASCII. Its existence is not checked."""
    address = string(value)
    try:
        normalized = validate_email(
            address.strip(" "), allow_smtputf8=False, check_deliverability=False, strict=True, test_environment=True
        ).ascii_email
    except EmailNotValidError:
        normalized = None
    if normalized is None or len(normalized) > _EMAIL_LENGTH:
        raise PydanticCustomError("malformed", "must be an email address.")
    return normalized


def _display_name(value: object) -> str:
    """The name of an application or an API key, without blanks around it."""
    name = string(value).strip()
    if any(unicodedata.category(character) in CONTROL for character in name):
        raise PydanticCustomError("malformed", "must not contain control characters.")
    if len(name) not in _NAME_LENGTH:
        limits = {"min": _NAME_LENGTH[0], "max": _NAME_LENGTH[-1]}
        raise PydanticCustomError("out_of_range", "must have {min} to {max} characters.", limits)
    return name


def _file_ids(value: object) -> tuple[str, ...]:
    """The ids in the order of the request. Their existence is not checked."""
    if not isinstance(value, list) or not all(isinstance(file_id, str) for file_id in value):
        raise PydanticCustomError("malformed", "must be a list of strings.")
    return tuple(value)


def unique_ids(file_ids: Sequence[str], limit: int) -> tuple[str, ...]:
    """The ids without duplicates. Raises InvalidParameter unless there are 1 to `limit` ids, duplicates included."""
    if 1 <= len(file_ids) <= limit:
        return tuple(dict.fromkeys(file_ids))
    message = f"file_ids must have 1 to {limit} ids."
    raise InvalidParameter(message, reason="out_of_range", param="file_ids", details={"min": 1, "max": limit})


@dataclass(frozen=True)
class Period:
    """A period from `start` to before `end`, in Unix time, with the name that the client used."""

    name: str
    start: int
    end: int


def parse_period(text: str | None, now: int) -> Period:
    """The calendar month `YYYY-MM`, or from the day `YYYY-MM-DD` to now. None is the current month.

    Raises InvalidParameter.
    """
    name = f"{datetime.fromtimestamp(now, UTC):%Y-%m}" if text is None else text
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}", name):
            first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
            next_month = (first + timedelta(days=31)).replace(day=1)
            return Period(name, int(first.timestamp()), int(next_month.timestamp()))
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", name):
            start = int(datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
            return Period(name, start, max(start, now) + 1)  # includes the current second
    except (ValueError, OverflowError):
        pass  # no such day
    raise InvalidParameter("period must be a month YYYY-MM or a day YYYY-MM-DD.", reason="malformed", param="period")


_PERIOD_SCHEMA: Final = {"type": "string", "anyOf": [{"pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}, {"format": "date"}]}

UsagePeriod = Annotated[
    Period,
    field_type(
        lambda value: parse_period(string(value), int(time.time())),
        Annotated[str, Field(json_schema_extra=_PERIOD_SCHEMA)],
    ),
    Field(
        description="A month `YYYY-MM`, or a day `YYYY-MM-DD` at which the period starts. The default is the current "
        "month.",
        examples=["2026-11"],
    ),
]
Language = Annotated[
    str,
    matching("[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", "a language tag, for example en or pt-BR"),
    Field(
        description="The language of the checkout page. `en` is the default, and used where the payment provider does "
        "not support the language.",
        examples=["de"],
    ),
]
PageLimit = Annotated[int, integer(1, 100), Field(description="Maximum number of entries.", examples=[50])]
PageCursor = Annotated[
    str,
    matching(CURSOR, "the `next_cursor` of a page"),
    Field(
        description="The `next_cursor` of the previous page. The default is the first page.",
        examples=["1795238640-file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
DisplayName = Annotated[str, field_type(_display_name, Annotated[str, Field(pattern=_NAME)])]


class PreviewFields(RequestModel):
    """POST /try/preview."""

    output_format: Annotated[str | None, Field(description="The format of a sample.", examples=["webp"])] = None


class FileConversionFields(TargetFields, JobFields, ExportFields):
    """POST /files/{file_id}/convert."""


class ToolFields(JobFields, ExportFields):
    """The tools."""


class DryRunField(RequestModel):
    """Whether the conversion is run."""

    dry_run: Annotated[
        bool,
        field_type(boolean, bool),
        Field(
            description="Only looks at the header of the file: the response describes the conversion. Costs nothing.",
            examples=[False],
        ),
    ] = False


class DirectConversionFields(TargetFields, JobFields, ExportFields, DryRunField):
    """POST /convert."""


class TrialFields(ConversionFields, DryRunField):
    """A trial conversion."""


class BatchConversionFields(TargetFields, JobFields):
    """POST /batch/{batch_id}/convert."""

    file_ids: Annotated[
        tuple[str, ...],
        field_type(_file_ids, Annotated[list[str], Field(min_length=1)]),
        Field(
            description="The files of the batch to convert. Duplicates are ignored.",
            examples=[["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]],
        ),
    ]


class FileListQuery(RequestModel):
    """GET /files."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None
    status: (
        Annotated[
            str,
            one_of("pending", "processed"),
            Field(description="Only files with this status.", examples=["processed"]),
        ]
        | None
    ) = None


class JobListQuery(RequestModel):
    """GET /jobs."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None
    status: (
        Annotated[
            str,
            one_of(*get_args(Status)),
            Field(description="Only jobs with this status.", examples=["completed"]),
        ]
        | None
    ) = None
    tag: Tag | None = None


class LinkFields(RequestModel):
    """POST /files/{file_id}/links."""

    expires_in: Annotated[
        int,
        integer(60, 7 * DAY),
        Field(description="How long the link works, in seconds. It ends with the file at the latest.", examples=[3600]),
    ] = 3600


class DownloadQuery(RequestModel):
    """GET /files/{file_id}/download."""

    output: (
        Annotated[
            int,
            integer(1, MAX_OUTPUTS),
            Field(
                description="Of a request with `outputs`, the number of the result instead of the ZIP.", examples=[1]
            ),
        ]
        | None
    ) = None


class LinkQuery(DownloadQuery):
    """GET /links/{token}."""

    disposition: Annotated[
        str,
        one_of("attachment", "inline"),
        Field(
            description="`inline`: the browser shows the result instead of saving it. Only for images of pixels and "
            "PDFs.",
            examples=["inline"],
        ),
    ] = "attachment"


class ArchiveFields(RequestModel):
    """POST /files/zip."""

    file_ids: Annotated[
        tuple[str, ...],
        field_type(_file_ids, Annotated[list[str], Field(min_length=1, max_length=MAX_ARCHIVE)]),
        Field(
            description="The files whose results the archive has, in its order. Duplicates are ignored.",
            examples=[["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]],
        ),
    ]


class EmailFields(RequestModel):
    """An email address, for commands."""

    email: Annotated[
        str,
        field_type(_email, Annotated[str, Field(json_schema_extra={"format": "email"})]),
        Field(description="The address that the verification email is sent to.", examples=["you@example.com"]),
    ]


class RegistrationFields(EmailFields):
    """POST /register."""

    name: Annotated[
        DisplayName,
        Field(
            description="The name of the application: 2 to 100 characters, without control characters. Blanks around "
            "it are removed.",
            examples=["Photo shop"],
        ),
    ]


class VerificationQuery(RequestModel):
    """GET /verify."""

    token: Annotated[
        str,
        matching("[0-9A-Fa-f]{64}", "64 hexadecimal digits"),
        Field(description="The token from the link in the verification email.", examples=["0123456789abcdef" * 4]),
    ]


class UsageQuery(RequestModel):
    """GET /account/usage."""

    period: UsagePeriod | None = None


class NewKeyFields(RequestModel):
    """POST /account/keys."""

    name: (
        Annotated[
            DisplayName,
            Field(description="The name of the key. The default is the account's name.", examples=["Laptop"]),
        ]
        | None
    ) = None
    mode: Annotated[
        Mode,
        Field(
            description=f"Conversions with a `test` key cost nothing, have the warning `test_mode`, and are limited to "
            f"{TEST_CONVERSIONS} a day.",
            examples=["test"],
        ),
    ] = "live"


class KeyRotationFields(RequestModel):
    """POST /account/keys/{key_id}/rotate."""

    grace_period_seconds: Annotated[
        int,
        integer(0, MAX_GRACE),
        Field(description="How long the replaced key stays valid, in seconds.", examples=[3600]),
    ] = DAY


class PurchaseFields(RequestModel):
    """POST /credits/purchase."""

    pack: Annotated[
        str,
        field_type(string, Annotated[str, Field(json_schema_extra={"enum": list(DEFAULT_PACKS)})]),
        Field(description="The pack of credits to buy.", examples=["starter"]),
    ]
    language: Language | None = None


class IdempotencyHeader(RequestModel):
    """The header of requests that can be repeated safely."""

    idempotency_key: (
        Annotated[
            str,
            matching("[!-~]([ -~]{0,253}[!-~])?", "1 to 255 printable ASCII characters"),
            Field(
                description="Makes the request safe to repeat: for 24 hours, the same request with the same key "
                "returns the same response and is charged once.",
                examples=["0b9d6c1e-5b1f-4c38-9a52-2f0f3c6a7d11"],
            ),
        ]
        | None
    ) = Field(default=None, alias="Idempotency-Key")


class ChargeHeaders(IdempotencyHeader, PreferHeader):
    """The headers of requests that convert files."""


class StripeHeader(RequestModel):
    """The header of Stripe's webhook events."""

    signature: Annotated[
        str,
        field_type(string, str),
        Field(
            description="The signature of the event.",
            examples=["t=1795238640,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"],
        ),
    ] = Field(alias="Stripe-Signature")


def _events(value: object) -> tuple[Event, ...]:
    """The events in the order of the documentation."""
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("malformed", "must be a list of events.")
    if not all(name in EVENTS for name in value):
        raise PydanticCustomError("unknown", f"must be some of {', '.join(EVENTS)}.", {"available": list(EVENTS)})
    return tuple(event for event in EVENTS if event in value)


class WebhookFields(RequestModel):
    """POST /webhooks."""

    url: Annotated[
        str,
        URL,
        Field(
            description="The URL that gets the messages: http or https, at a public address, without credentials.",
            examples=["https://app.example/hooks/convertd"],
        ),
    ]
    events: Annotated[
        tuple[Event, ...],
        field_type(_events, Annotated[list[Event], Field(min_length=1)]),
        Field(description="The events that it gets.", examples=[["job.completed", "job.failed"]]),
    ] = EVENTS


class PageQuery(RequestModel):
    """GET /webhooks and GET /webhooks/{webhook_id}/deliveries."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None
