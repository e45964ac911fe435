"""What every error code means to clients: what to do about it, and what comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from web.api.schemas import common


@dataclass(frozen=True)
class ErrorDescription:
    """An error code for its readers: a message that it comes with, and what to do. Words in backquotes are code.

    `details` is the shape of what comes with it.
    """

    message: str
    advice: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    details: Any = None
    headers: tuple[str, ...] = ()


ERROR_CATALOGUE: Mapping[str, ErrorDescription] = MappingProxyType(
    {
        "invalid_api_key": ErrorDescription(
            "The API key is missing or invalid.",
            "Send a key that works as `Authorization: Bearer …`. A lost one is replaced by registering with the same "
            "address.",
            headers=("WWW-Authenticate",),
        ),
        "key_not_verified": ErrorDescription(
            "The account's e-mail address is not verified: open the link in the mail.",
            "Open the link in the letter that came when you registered.",
        ),
        "rate_limit_exceeded": ErrorDescription(
            "More than 60 requests in 60 seconds.",
            "Wait for as many seconds as `Retry-After` says. With the reason `queue_full` more is being converted than "
            "there is room for; less at a time comes through.",
            {
                "queue_full": "too much is being converted",
                "failed_authentications": "too many wrong keys were shown",
                "registrations": "there were too many registrations",
                "too_many_connections": "too many connections are open",
            },
            common.RateDetails,
            ("Retry-After",),
        ),
        "no_credits": ErrorDescription(
            "No credits are left for this operation; buy a pack.",
            "Buy a pack. `details` tells the balance and what was needed.",
            details=common.CreditDetails,
        ),
        "invalid_file_type": ErrorDescription(
            "The file's content is of no supported type.",
            "The content decides, not the name. `reason` tells an empty file, one of no known format, and a PDF that "
            "needs the field `password`.",
            {
                "unrecognized": "it is like no known format",
                "empty_file": "it has no bytes",
                "not_a_pdf": "only PDFs are taken here",
                "pdf_encrypted": "it opens with a `password` only",
            },
            common.FileTypeDetails,
        ),
        "file_too_large": ErrorDescription(
            "The file is larger than 10485760 bytes.",
            "`reason` tells whether it has too many bytes, pixels, frames, pages, scans or elements, or whether files "
            "have to be deleted first; `details` the limit.",
            {
                "bytes": "the file or the body has too many",
                "storage": "the account's uploads, which are kept for a time, would take too much together",
                "pixels": "a picture is too large",
                "frames": "there are too many, or too many pixels in all of them",
                "pages": "there are too many, or too many pixels on all of them",
                "scans": "a JPEG has too many",
                "elements": "an SVG has too many",
            },
            common.SizeDetails,
        ),
        "unsupported_conversion": ErrorDescription(
            "psd cannot be converted to xyz.",
            "`details.available` lists what this format can be converted to.",
            details=common.PairDetails,
        ),
        "processing_failed": ErrorDescription(
            "The picture data cannot be decoded.",
            "`corrupt_input` and `engine_error` fail again, whatever you do. After `timeout`, `out_of_memory` and "
            "`worker_crashed` another attempt may do better. Nothing is charged.",
            {
                "corrupt_input": "the file is damaged",
                "engine_error": "the fault is not the file's",
                "timeout": "it took too long",
                "out_of_memory": "it needed too much memory",
                "worker_crashed": "its process died",
            },
            common.JobDetails,
        ),
        "invalid_parameter": ErrorDescription(
            "quality must be an integer from 1 to 100.",
            "`param` names the field, and `reason` what is wrong with it.",
            {
                "missing": "it is required",
                "malformed": "it has the wrong form, or the body or the path has",
                "out_of_range": "it lies outside the bounds in `details`",
                "not_an_integer": "it is no whole number",
                "unknown": "it is none of those in `details`",
                "duplicate": "it was sent twice",
                "too_long": "its text has too many bytes",
                "encoding": "its text is not in UTF-8",
                "truncated": "the body ends too early",
                "content_type": "the body is no multipart form",
                "content_encoding": "the body is compressed",
                "too_many_parts": "the form has too many parts",
                "last_key": "the last key can be rotated only",
                "invalid_signature": "the event is not signed by the payment provider, or too old",
            },
            common.ParameterDetails,
        ),
        "not_found": ErrorDescription(
            "No such file.",
            "The path is wrong, or the file or batch is gone: they are kept for a limited time.",
            {"not_processed": "the file has not been converted yet"},
        ),
        "server_error": ErrorDescription(
            "The server failed to answer this request.",
            "It is not your doing. Try again later, and tell us the `request_id`.",
            {
                "checkout_unavailable": "the payment provider does not answer",
                "checkout_not_configured": "nothing is sold here",
            },
        ),
        "method_not_allowed": ErrorDescription(
            "This path answers to POST, OPTIONS.",
            "The header `Allow` lists what the path answers to.",
            headers=("Allow",),
        ),
        "idempotency_conflict": ErrorDescription(
            "The same request is still running.",
            "The first request with this key still runs. Send it again in a moment.",
            headers=("Retry-After",),
        ),
        "idempotency_key_reused": ErrorDescription(
            "This key belongs to another request.",
            "Take a new key for another file or other parameters.",
        ),
        "range_not_satisfiable": ErrorDescription(
            "The file has 20104 bytes.",
            "The file ends before the part that `Range` asks for.",
            details=common.RangeDetails,
            headers=("Content-Range",),
        ),
        "not_ready": ErrorDescription(
            "The service is not ready.",
            "The service starts, stops, or cannot work. Another may answer; try again.",
            {"disk_full": "there is no room for files"},
            common.ReadinessDetails,
            ("Retry-After",),
        ),
        "request_timeout": ErrorDescription(
            "The body came too slowly.",
            "The request came too slowly. Send it over a better line, or in smaller files.",
        ),
    }
)
"""The codes of errors, in the order in which the docs list them."""
