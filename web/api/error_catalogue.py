"""Every error code with its HTTP status and documentation, and the documentation of every warning code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict


class ParameterDetails(TypedDict, total=False):
    """The allowed values, and the value sent."""

    min: float
    max: float
    count: int
    value: str
    page: int
    page_count: int
    max_files: int
    max_webhooks: int
    available: list[str | int]
    status: int


FileIndex: TypeAlias = Annotated[int, Field(description="Which of several files it is, from 0.")]


class FileTypeDetails(TypedDict, total=False):
    """The invalid file, and its detected format."""

    index: FileIndex
    input_format: str | None


class PairDetails(TypedDict, total=False):
    """The requested formats, and the available output formats."""

    input_format: Annotated[str, Field(examples=["psd"])]
    output_format: Annotated[str, Field(examples=["xyz"])]
    available: Annotated[list[str], Field(examples=[["jpeg", "png"]])]


class SizeDetails(TypedDict, total=False):
    """The limit, and the size sent."""

    max_file_size: Annotated[int, Field(description="Bytes.", examples=[10_485_760])]
    max_body_size: int
    max_bytes: int
    max_stored_bytes: int
    stored_bytes: int
    max_pixels: int
    pixels: int | None
    max_side: int
    width: int
    height: int
    max_frames: int
    frames: int
    max_pages: int
    pages: int
    max_total_pixels: int
    total_pixels: int
    max_scans: int
    scans: int
    max_elements: int
    max_nesting: int
    max_layout_seconds: int
    max_layout_bytes: int
    index: FileIndex
    max_fonts: int


class JobDetails(TypedDict, total=False):
    """The failed step, and why it ended."""

    index: FileIndex
    step: Annotated[str, Field(examples=["jpeg -> raster"])]
    max_seconds: float
    exit_code: int | None
    max_bytes: int
    status: Annotated[int, Field(description="The HTTP status that `export_url` responds with.", examples=[403])]
    smallest: Annotated[int, Field(description="Bytes of the smallest file that an encoder has written.")]


class CreditDetails(TypedDict):
    """The balance and the price of the operation in credits."""

    credits_remaining: Annotated[int, Field(examples=[0])]
    credits_required: Annotated[int, Field(examples=[1])]


class RateDetails(TypedDict):
    """Seconds to wait, as in `Retry-After`."""

    retry_after: Annotated[int, Field(ge=1, examples=[17])]


class RangeDetails(TypedDict):
    """The size of the file in bytes."""

    size: int


class ReadinessDetails(TypedDict, total=False):
    """The failed checks."""

    reasons: Annotated[list[str], Field(examples=[["the database does not respond"]])]


@dataclass(frozen=True)
class ErrorDescription:
    """An error code: its HTTP status, an example message, advice, reasons, and the schema of `details`.

    Words in backquotes are code. `headers` are sent with the error.
    """

    status: int
    message: str
    advice: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    details: Any = None
    headers: tuple[str, ...] = ()


ERROR_CATALOGUE: Mapping[str, ErrorDescription] = MappingProxyType(
    {
        "invalid_api_key": ErrorDescription(
            401,
            "The API key is missing or invalid.",
            "Send a valid API key as `Authorization: Bearer …`. To replace a lost key, register again with the same "
            "email address.",
            headers=("WWW-Authenticate",),
        ),
        "key_not_verified": ErrorDescription(
            403,
            "The account's email address is not verified. Open the link in the verification email.",
            "Open the link in the email that was sent at registration.",
        ),
        "rate_limit_exceeded": ErrorDescription(
            429,
            "More than 60 requests in 60 seconds.",
            "Wait for `Retry-After` seconds and repeat the request. With the reason `queue_full`, the server has too "
            "many conversions waiting; send fewer at a time.",
            {
                "queue_full": "too many conversions are waiting",
                "failed_authentications": "too many requests with an invalid API key",
                "registrations": "too many registrations",
                "test_limit": "too many conversions with test keys within a day",
                "rotations": "too many new secrets of a webhook within 24 hours",
                "too_many_connections": "too many open connections",
            },
            RateDetails,
            ("Retry-After",),
        ),
        "no_credits": ErrorDescription(
            402,
            "No credits are left for this operation.",
            "Get more credits. `details` has the balance and the price.",
            details=CreditDetails,
        ),
        "invalid_file_type": ErrorDescription(
            400,
            "The content of the file matches no supported format.",
            "The file's content decides its type, not its name. `reason` distinguishes empty files, unknown formats, "
            "and PDFs that need the field `password`.",
            {
                "unrecognized": "the content matches no known format",
                "empty_file": "the file has 0 bytes",
                "not_a_pdf": "only PDFs are accepted here",
                "not_a_picture": "only images are accepted here",
                "not_a_pdf_or_picture": "only PDFs and images are accepted here",
                "pdf_encrypted": "the PDF needs a `password`",
                "file_encrypted": "the file of Office needs a `password`",
            },
            FileTypeDetails,
        ),
        "file_too_large": ErrorDescription(
            413,
            "The file is larger than 10485760 bytes.",
            "`reason` names the exceeded limit: bytes, pixels, frames, pages, scans, elements, or the account's "
            "storage. `details` has the limit.",
            {
                "bytes": "the file or the body has too many bytes",
                "storage": "the account's stored uploads and results exceed its quota",
                "pixels": "an image has too many pixels",
                "frames": "an animation has too many frames, or too many pixels in all frames",
                "pages": "a document has too many pages, or too many pixels on all pages",
                "scans": "a JPEG has too many scans",
                "elements": "an SVG, HTML or document has too many elements, or takes too long to lay out",
            },
            SizeDetails,
        ),
        "unsupported_conversion": ErrorDescription(
            400,
            "psd cannot be converted to xyz.",
            "`details.available` lists the output formats for this input format.",
            details=PairDetails,
        ),
        "processing_failed": ErrorDescription(
            500,
            "The image data cannot be decoded.",
            "`corrupt_input`, `engine_error`, `target_unreachable` and, unless it is `retryable`, `out_of_memory` fail "
            "again if repeated. After `timeout` and `worker_crashed` a retry may succeed. Failed conversions are not "
            "charged.",
            {
                "corrupt_input": "the file is damaged",
                "engine_error": "the conversion failed for another reason than the file",
                "target_unreachable": "no quality results in a file of at most `max_bytes`",
                "timeout": "the conversion took too long",
                "out_of_memory": "the conversion needed too much memory",
                "worker_crashed": "the worker process crashed",
                "export_failed": "the result could not be sent to `export_url`",
            },
            JobDetails,
        ),
        "invalid_parameter": ErrorDescription(
            400,
            "quality must be an integer from 1 to 100.",
            "`param` names the field, and `reason` what is wrong with it.",
            {
                "missing": "a required field is missing",
                "malformed": "the field, the body or the path has the wrong form",
                "out_of_range": "the value is outside the limits in `details`",
                "not_an_integer": "the value is not an integer",
                "unknown": "the value is none of those in `details`",
                "exclusive": "only one of several fields may be sent",
                "nothing_found": "the file has nothing of what was asked for",
                "unsupported": "the format does not have the option's value for this file",
                "unknown_parameter": "no field has this name; `details` lists those that exist, the nearest first",
                "duplicate": "the field was sent twice",
                "too_long": "the value has too many bytes",
                "encoding": "the text is not valid UTF-8",
                "truncated": "the body ends too early",
                "no_file": "the field has the name of a file, or another text, instead of the file",
                "content_type": "the body is not a multipart form",
                "content_encoding": "the body is compressed, or the file at the URL",
                "too_many_parts": "the form has too many parts",
                "too_many_keys": "the account has as many API keys as it may have",
                "cross_site": "a page of another site sent the request",
                "unknown_host": "the page was requested under another host than the service's",
                "domain": "addresses of other domains can register",
                "sign_in_refused": "the OpenID Connect provider has not confirmed a person who may sign in",
                "too_many": "the account has as many webhooks as it may have",
                "webhook_disabled": "the webhook has ended",
                "last_key": "the last API key can only be rotated",
                "invalid_signature": "the event's signature is invalid or expired",
                "invalid_url": "the URL is malformed, no http or https URL, or has a password",
                "forbidden_address": "the URL does not lead to a public address",
                "forbidden_port": "the URL has a port that the operator does not allow",
                "unreachable": "the server of the URL cannot be reached, or its response is incomplete",
                "http_status": "the server of the URL responds with the status in `details`",
                "too_many_redirects": "the URL redirects too often",
                "timeout": "the server of the URL takes too long",
            },
            ParameterDetails,
        ),
        "not_found": ErrorDescription(
            404,
            "No such file.",
            "The path is wrong, or the resource was deleted or has expired: files and batches are kept for a limited "
            "time.",
            {
                "not_processed": "the file has not been converted yet",
                "registration_closed": "the operator of the service makes all accounts",
            },
        ),
        "server_error": ErrorDescription(
            500,
            "The server failed to process this request.",
            "The server is at fault. Retry later, and quote the `request_id` when you report it.",
            {
                "checkout_unavailable": "the payment provider does not respond",
                "checkout_not_configured": "no payment provider is configured",
                "email_not_configured": "no mail server is configured",
                "sign_in_unavailable": "the sign-in service of the dashboard does not respond",
            },
        ),
        "method_not_allowed": ErrorDescription(
            405,
            "This path supports POST, OPTIONS.",
            "The header `Allow` lists the methods that the path supports.",
            headers=("Allow",),
        ),
        "idempotency_conflict": ErrorDescription(
            409,
            "The same request is still running.",
            "The first request with this idempotency key is still running. Retry after `Retry-After` seconds.",
            headers=("Retry-After",),
        ),
        "idempotency_key_reused": ErrorDescription(
            422,
            "This idempotency key was used for a different request.",
            "Use a new idempotency key for another file or other parameters.",
        ),
        "range_not_satisfiable": ErrorDescription(
            416,
            "The requested range starts after the end of the file, which has 20104 bytes.",
            "Request a `Range` that starts before the end of the file. `details` has its size.",
            details=RangeDetails,
            headers=("Content-Range",),
        ),
        "not_ready": ErrorDescription(
            503,
            "The service is not ready.",
            "The service is starting, stopping, or a part of it fails. Retry, on another server if there is one.",
            {"disk_full": "the server has no disk space left"},
            ReadinessDetails,
            ("Retry-After",),
        ),
        "request_timeout": ErrorDescription(
            408,
            "The body of the request arrived too slowly.",
            "The request arrived too slowly. Use a faster connection or smaller files.",
        ),
    }
)
"""The error codes in the order of the documentation."""

WARNING_CATALOGUE: Mapping[str, str] = MappingProxyType(
    {
        "active_content": "nothing; the PDF runs scripts, programs or other actions, which `sanitize` and PDF/A remove",
        "alpha_flattened": "transparency; the image is placed on the `background`, which is white by default",
        "alpha_thresholded": "half transparent pixels, which become transparent or opaque",
        "archive_claim_removed": "the claim to be PDF/A, of a PDF that is changed as PDF/A does not permit",
        "attachments_dropped": "files that are attached to a PDF or a mail",
        "blank_page": "nothing, or everything: a browser has drawn nothing of the page",
        "color_converted": "colors of CMYK or Lab, which become sRGB",
        "colors_reduced": "colors beyond those that the target supports: 256, gray, or black and white",
        "depth_reduced": "bits per sample beyond those that the target supports",
        "effects_dropped": "parts of SVG, HTML, DXF and mails that are not drawn, such as animations or scripts",
        "effects_rasterized": "filters of an SVG, and transparency in an EPS, which become images among the vectors",
        "encoding_guessed": "nothing; the encoding of a text was recognized by its characters; `encoding` names it",
        "encryption_dropped": "encryption, when PDFs are merged, or if the target has none",
        "fields_not_calculated": "values of form fields that scripts calculate, which keep the values they have",
        "font_substituted": "fonts that are not installed, replaced by others, and the colors of emoji",
        "forms_dropped": "the form fields of a PDF, which are drawn as they are; annotations that PDF/A forbids",
        "frames_dropped": "all frames of an animation but the first; the video of a motion photo",
        "glyphs_missing": "characters that no font has; boxes are drawn, or nothing",
        "hdr_reduced": "high dynamic range, also in a gain map; the image is as on a screen without HDR",
        "http_status": "perhaps all of a page: its server responds with an error, which is converted",
        "jpeg_reencoded": "the coding of a JPEG above 40 megapixels, or that JPEG XL cannot hold, such as CMYK",
        "kept_original": "nothing; the result is the original, because the converted file is larger",
        "language_guessed": "nothing; the language of recognized text is one of those installed; `language` names it",
        "layers_dropped": "layers of a PSD that cannot be drawn, without a merged image; channels of EXR, JP2, TIFF",
        "layers_flattened": "layers and effects of a PSD, which become one image",
        "links_dropped": "links of a PDF: all, or those to pages that are not in the same file",
        "location_removed": "the position in the metadata; `metadata=all` keeps it",
        "metadata_damaged": "metadata that is damaged, and cannot be read",
        "metadata_dropped": "EXIF, XMP, IPTC, comments or texts that the target cannot hold",
        "no_text": "nothing; text in images is not recognized without `ocr`, or an image or a page has no text",
        "not_enlarged": "nothing; the image is smaller than the size requested, and `enlarge` is not set",
        "option_ignored": "nothing; options of the request have no effect",
        "pages_dropped": "all pages but the first; pages of an overlay for which there is no page",
        "pictures_dropped": "images of a document that becomes text; additional images in a file, as in a DDS or PNM",
        "profile_dropped": "the color profile of CMYK, whose inks are kept",
        "quality_ignored": "nothing; the target is lossless, so `quality` has no effect",
        "repaired": "what could not be recovered of a damaged PDF, or of a file without its end",
        "resource_not_loaded": "images, fonts or styles that are not in the file, or that the server of a page lacks",
        "script_error": "what a script of a page would have drawn after its error",
        "signature_invalidated": "signatures, which are no longer valid for a changed PDF",
        "signature_not_verified": "signatures that a PDF has, but no form field of it shows",
        "sound_dropped": "the sound of a clip",
        "text_dropped": "words of a document; the message has their number",
        "timing_dropped": "frame durations, when frames become pages",
        "timing_rounded": "frame durations, in the hundredths of a second of GIF, or of a long clip, with its total; "
        "and what is longer or plays more often than the target can say",
        "test_mode": "made with a test key",
        "tone_mapped": "light brighter than white; a curve makes it darker, and leaves middle gray (18 %) as it is",
        "functions_unknown": "formulas whose functions LibreOffice does not know; their cells keep their values",
        "values_changed": "what cells hold: text that became a number or a date, or what the target cannot hold",
        "xfa_dropped": "the XFA form of a PDF; its ordinary form fields are kept",
    }
)
"""What is lost or changed, by the code of the warning. Words in backquotes are code. Plugins can issue other codes."""

INFORMATION_WARNINGS = frozenset(
    {
        "encoding_guessed",
        "hdr_reduced",
        "jpeg_reencoded",
        "kept_original",
        "language_guessed",
        "location_removed",
        "not_enlarged",
        "option_ignored",
        "quality_ignored",
        "timing_rounded",
    }
)
"""Warnings that pages show as information: what is lost does not change what a screen shows."""
