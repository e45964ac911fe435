"""Options, errors and models of the convertd API.

Generated from its OpenAPI document by web/client/generate.py, which overwrites this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, BinaryIO, Literal, TypedDict

from convertd_client.transport import ConvertdError


class ConvertOptions(TypedDict, total=False):
    """The options of all conversions."""

    export_url: str  # A presigned URL, such as of S3, to which the server also sends the result by PUT.
    export_headers: Mapping[str, str]  # Headers of the request to `export_url`, as JSON.
    # Multiple outputs instead of one: a list of objects, each with `output_format`, options and a `name`.
    outputs: tuple[Mapping[str, Any], ...]
    preset: str  # The preset of the account whose fields the request uses, unless it has its own.
    # The name of the result: text with the fields {name}, of the upload without its extension, {ext}, {format}, …
    filename: str
    # With the output format `auto`: the formats of which the smallest file is the result, among those that keep …
    formats: str
    frames: str  # every:N keeps one of N frames, which is shown for the time of all N.
    reverse: bool  # Plays an animation backwards.
    delay: int  # Milliseconds for which each frame is shown.
    speed: float  # Factor by which an animation plays faster.
    loop: int  # How often an animation plays; 0: forever.
    # Most frames of an animation in a second, on average; ones that come sooner are left out, and the total time …
    fps: float
    pages: str  # Pages or frames from 1, such as 1, 2-5,8, 3- or all, in the order given.
    hdr: Literal["keep", "drop"]  # Whether the gain map stays, which makes an image brighter on screens with HDR.
    quality: int  # Quality of a lossy encoder; higher is better and larger.
    lossless: bool  # Keeps every pixel exactly.
    effort: int  # Higher is slower and smaller, at the same quality.
    # 4:4:4 keeps the resolution of colors, 4:2:2 halves their width, 4:2:0 width and height.
    subsampling: Literal["4:2:0", "4:2:2", "4:4:4"]
    max_bytes: int  # Size limit in bytes of each file; the best quality that fits, at most `quality`, is used.
    radius: str  # Radius of rounded corners in pixels, or in percent of the shorter side; 50% makes a circle.
    # Adds a border of `background`: one width, or top,right,bottom,left, in pixels or percent of the height (top, …
    pad: str
    background: str  # #rgb, #rrggbb, #rrggbbaa or a CSS color name; replaces transparency and pads `contain`.
    at: float  # Seconds into a clip: the frame shown then.
    # Color space into which the pixels are converted: p3 is for current screens, cmyk uses `output_profile`, by …
    color_space: Literal["keep", "srgb", "gray", "p3", "cmyk"]
    # ICC profile to which the colors are converted, and which the result has: srgb, p3, adobe-rgb, fogra39 …
    output_profile: str | PathLike[str] | bytes | BinaryIO
    # How colors that the new profile lacks are changed; relative keeps all others.
    intent: Literal["perceptual", "relative", "saturation", "absolute"]
    bit_depth: Literal[8, 10, 12, 16]  # Bits per sample of the result.
    encoding: str  # Encoding of a text, such as windows-1251, koi8-r or gbk; without it, it is recognized.
    separator: Literal["comma", "semicolon", "tab", "pipe"]  # Character between the cells of a row in CSV.
    bom: bool  # Begins CSV with a byte order mark, by which Excel recognizes UTF-8.
    # Size of the pages on which text is laid out.
    page_size: Literal["a3", "a4", "a5", "a6", "letter", "legal", "tabloid"]
    landscape: bool  # Whether the pages are wider than high.
    margin: float  # Distance to the edges of the page in mm.
    exposure: float  # Brightens or darkens images with linear light, in stops.
    font_size: float  # Size of text in points; headings are larger in proportion.
    brightness: float  # Factor of all colors, as brightness() of CSS.
    contrast: float  # Factor of the distance to middle gray, as contrast() of CSS.
    saturation: float  # Factor of the distance to gray, as saturate() of CSS; 0 is gray.
    gamma: float  # Above 1 brightens mid-tones, as -gamma of ImageMagick.
    blur: float  # Standard deviation in pixels of a Gaussian blur of the result.
    sharpen: float  # Standard deviation in pixels of an unsharp mask; 1 is usual.
    pixelate: int  # Side in pixels of the squares that get their mean color.
    # `safe` removes position, serial numbers, owner, maker notes and thumbnails.
    metadata: Literal["all", "safe", "none"]
    dpi: int  # Resolution at which pages and vectors become pixels, and which is written into images.
    # x,y,width,height in pixels or percent of the upright input, or a ratio such as 16:9, placed by `gravity`; …
    crop: str
    # What `cover` and a `crop` by ratio keep, and the position in `contain`: center, north, northeast and so on; …
    gravity: str
    rotate: Literal[0, 90, 180, 270]  # Degrees clockwise.
    flip: Literal["horizontal", "vertical"]  # Mirrors the image.
    width: int  # Width in pixels; without `height`, the aspect ratio is kept.
    height: int  # Height in pixels; without `width`, the aspect ratio is kept.
    # How the image fits `width` and `height`; as object-fit of CSS.
    fit: Literal["inside", "outside", "cover", "contain", "fill"]
    enlarge: bool  # Whether an image may become larger than its source.
    # Size in percent of the image, 1% to 1000%, where no `width` or `height` is given; of what a browser prints, …
    scale: str
    dpr: float  # Device pixel ratio, which multiplies `width` and `height`.
    max_pixels: int  # Most pixels of the resized image, width x height.
    colors: int  # Most colors of a palette, of GIF or PNG; implies `palette`.
    dither: float  # How much the colors of a palette are mixed; 0 is not at all.
    # How far pixels of an animation may stray for a smaller file, on the scale of gifsicle: 20 is hard to see, 80 …
    lossy: int
    # What lays out a page of HTML: a browser, which also runs its scripts, or `print`, which has all of CSS for …
    renderer: Literal["auto", "print", "browser"]
    # Standard of a PDF: PDF/A-2b, or 3b with attached files; or PDF/UA-1, which is accessible, of texts, slides …
    pdf_standard: Literal["none", "pdfa-2b", "pdfa-3b", "pdfua-1"]
    # The medium of style sheets; by default print for pages, and screen for an image.
    media: Literal["print", "screen"]
    viewport: str  # Size of the window in pixels of CSS.
    dark: bool  # Whether the page is asked for dark colors.
    scripts: bool  # Whether scripts of the page run.
    # Until when the page has time: `load`, `network_idle` (half a second without a request), or milliseconds …
    wait: str
    wait_for: str  # A selector of CSS: the page has 15 seconds to show such an element.
    user_agent: str  # The name of the browser in requests.
    cookies: tuple[Mapping[str, Any], ...]  # Cookies for the host of the page, as a JSON list.
    fail_on_status: bool  # Whether a page whose status is 400 or more is refused; else it is converted.
    print_background: bool  # Whether backgrounds are printed.
    header_html: str  # HTML in the upper margin.
    footer_html: str  # HTML in the lower margin, as `header_html`.
    bookmarks: bool  # Whether headings become the outline of a PDF.
    device_scale: float  # Pixels of the image for a pixel of CSS, in each direction.
    full_page: bool  # Whether the image has all of the page, or only the window.
    selector: str  # A selector of CSS: the image has only the first such element.
    # Where a text has the images of its source: inside, as data, nowhere, or beside it in a ZIP.
    images: Literal["embed", "drop", "zip"]
    sizes: str  # 1 to 256, with commas between: sides in pixels of the squares in an icon.
    ocr: bool  # Recognizes the text of pages that have none.
    language: str  # Languages of the text by their codes in Tesseract, the most frequent one first.
    # Removes the border that has the color of the corner, or is transparent, up to this difference in percent; …
    trim: float
    progressive: bool  # Lets viewers show the image before it is complete.
    password: str  # Opens an encrypted file.
    # Text of tracked changes: as they leave it, as it was before, or all of it, with marks.
    markup: Literal["final", "original", "all"]
    comments: bool  # Whether comments become notes.
    sheet: str  # Name or number of the only sheet.
    fit_to_width: bool  # Scales sheets so that all columns fit on a page.
    single_page_sheets: bool  # Prints each sheet on one page, as large as the sheet.
    notes: bool  # Whether the result has the notes of the speaker: after each slide, or on pages at the end.
    # Cells of sheets: as a sheet shows them, with dates as in ISO 8601, or numbers with all digits.
    values: Literal["shown", "raw"]
    sanitize: bool  # Removes scripts, embedded programs and other active content from the PDF.
    user_password: str  # Opens the result.
    owner_password: str  # Opens the result with all permissions; by default a random one.
    # What is permitted without the owner's password, a list of print, copy, modify, annotate, forms; by default …
    allow: str
    compression: Literal["none", "lzw", "deflate", "jpeg"]  # Compression of TIFF.
    palette: bool  # Reduces PNG to a palette, for much smaller files; `quality` then decides how many colors it has.
    # `preview` uses the largest JPEG that the camera stored in the file; it can be small.
    raw_mode: Literal["develop", "preview"]
    white_balance: str  # camera, auto, or the color temperature of the light, 2000 to 12000 kelvin.
    half_size: bool  # Makes one pixel of each 2 x 2 of the sensor: four times faster, without interpolation.
    # An image to draw on the result, before `radius` and `pad`; of several pages or frames the first.
    watermark: str | PathLike[str] | bytes | BinaryIO
    watermark_text: str  # A text to draw on the result instead of an image, in one line and in any script.
    # Where the watermark is: center, north, northeast and so on; around the point x,y (0 to 1) as far as the …
    watermark_position: str
    watermark_opacity: float  # Opacity of the watermark; 1 hides what is below.
    # Width of the watermark, before it is turned, in percent of the width of the image; less where it would not …
    watermark_size: float
    # Distance of the watermark to the edges, in a tile to the next one, in percent of the width.
    watermark_margin: float
    watermark_angle: float  # Degrees counterclockwise by which the watermark turns.
    watermark_color: str  # CSS color of `watermark_text`, which has a thin outline in black or white.
    alpha_quality: int  # Quality of the transparency in lossy WebP; 100 is lossless.


class FileTooLarge(ConvertdError, code="file_too_large"):
    """`reason` names the exceeded limit: bytes, pixels, frames, pages, scans, elements, or the account's storage."""


class IdempotencyConflict(ConvertdError, code="idempotency_conflict"):
    """The first request with this idempotency key is still running."""


class IdempotencyKeyReused(ConvertdError, code="idempotency_key_reused"):
    """Use a new idempotency key for another file or other parameters."""


class InvalidApiKey(ConvertdError, code="invalid_api_key"):
    """Send a valid API key as `Authorization: Bearer …`."""


class InvalidFileType(ConvertdError, code="invalid_file_type"):
    """The file's content decides its type, not its name."""


class InvalidParameter(ConvertdError, code="invalid_parameter"):
    """`param` names the field, and `reason` what is wrong with it."""


class KeyNotVerified(ConvertdError, code="key_not_verified"):
    """Open the link in the email that was sent at registration."""


class MethodNotAllowed(ConvertdError, code="method_not_allowed"):
    """The header `Allow` lists the methods that the path supports."""


class NoCredits(ConvertdError, code="no_credits"):
    """Get more credits."""


class NotFound(ConvertdError, code="not_found"):
    """The path is wrong, or the resource was deleted or has expired: files and batches are kept for a limited time."""


class NotReady(ConvertdError, code="not_ready"):
    """The service is starting, stopping, or a part of it fails."""


class ProcessingFailed(ConvertdError, code="processing_failed"):
    """`corrupt_input`, `engine_error`, `target_unreachable` and, unless it is `retryable`, `out_of_memory` fail …"""


class RangeNotSatisfiable(ConvertdError, code="range_not_satisfiable"):
    """Request a `Range` that starts before the end of the file."""


class RateLimited(ConvertdError, code="rate_limit_exceeded"):
    """Wait for `Retry-After` seconds and repeat the request."""


class RequestTimeout(ConvertdError, code="request_timeout"):
    """The request arrived too slowly."""


class ServerError(ConvertdError, code="server_error"):
    """The server is at fault."""


class UnsupportedConversion(ConvertdError, code="unsupported_conversion"):
    """`details.available` lists the output formats for this input format."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account, its balance and its limits."""

    email: str
    name: str
    credits_remaining: int
    credits_total_purchased: int
    credits_used_total: int
    created_at: str  # UTC.
    last_used_at: str | None = None  # UTC.
    tier: str  # `free`, `paid` from the first purchase of credits on, or another plan of the service.
    max_file_size: int  # Bytes.
    storage: Storage
    rate_limit: RateLimit
    limits: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch and its files, in upload order."""

    batch_id: str  # The batch's id.
    output_format: str  # The canonical name of the target format of the latest run.
    created_at: str  # UTC.
    updated_at: str  # UTC.
    expires_at: str  # UTC.
    files: tuple[StoredFile, ...]
    max_files: int  # Maximum number of files.
    status: str  # `completed`: all files are processed; `partial`: some; `failed`: none.
    total: int
    pending: int
    processed: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class BatchEntry:
    """A converted file of a batch."""

    file_id: str  # The requested file.
    original_name: str | None = None  # The client's file name, without a path.
    extension: str | None = None  # The client's extension if it matches the content, else the format's usual one.
    input_format: str | None = None  # The format detected from the file's content.
    original_size: int | None = None  # Size of the input in bytes.
    batch_id: str | None = None  # The batch's id.
    source_file_id: str | None = None  # The file that was converted again to make this one.
    created_at: str | None = None  # UTC.
    processed_at: str | None = None  # UTC.
    expires_at: str | None = None  # UTC.
    output_format: str | None = None  # The canonical name of the target format.
    processed_size: int | None = None  # Size of the result in bytes.
    media_type: str | None = None  # The media type of the result.
    filename: str | None = None  # The name of the result.
    processing_time_ms: int | None = None  # Duration of the conversion in milliseconds.
    warnings: tuple[FidelityWarning, ...] = ()  # What the target format cannot hold.
    container: str | None = None  # Set if the result is an archive of the files.
    file_count: int | None = None  # Files in the `container`; without one, files that were sent.
    width: int | None = None  # Width of the first image in pixels; null for vectors and documents.
    height: int | None = None  # Height of the first image in pixels; null for vectors and documents.
    pages: int | None = None  # Pages or frames, of all files.
    quality_used: int | None = None  # The quality that `max_bytes` led to.
    page_count: int | None = None  # Pages of the result of a tool.
    original_page_count: int | None = None  # Pages of all files that a tool received.
    deleted_pages: tuple[int, ...] = ()  # Deleted pages, counted from 1.
    outputs: tuple[OutputResult, ...] = ()  # The results in the ZIP, in the order of the field `outputs`.
    reduction_percent: float | None = None  # Size reduction in percent.
    download_url: str | None = None  # Path to download the result.
    result_file_id: str | None = None  # The file of the result.
    status: str
    error: FileError | None = None  # Why the conversion failed.


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """The results of a batch conversion."""

    batch_id: str  # The batch's id.
    results: tuple[BatchEntry, ...]  # In the order of `file_ids`.
    total: int
    successful: int
    failed: int
    request_id: str  # The request's id in the server's log.
    credits_remaining: int  # The balance after this request.


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A supported conversion: its steps and its options."""

    input_format: str
    output_format: str
    path: tuple[str, ...]  # The steps, without those that only options add.
    losses: tuple[str, ...]  # `detail`: lossy encoding or fewer colors.
    credits: int
    options: Mapping[str, Any]  # The JSON Schema (2020-12) of an object with the options of the conversion.


@dataclass(frozen=True, kw_only=True)
class ConversionResult:
    """The result of a conversion."""

    file_id: str  # The file's id.
    original_name: str  # The client's file name, without a path.
    extension: str  # The client's extension if it matches the content, else the format's usual one.
    input_format: str  # The format detected from the file's content.
    original_size: int  # Size of the input in bytes.
    batch_id: str | None = None  # The batch's id.
    source_file_id: str | None = None  # The file that was converted again to make this one.
    created_at: str  # UTC.
    processed_at: str | None = None  # UTC.
    expires_at: str  # UTC.
    output_format: str  # The canonical name of the target format.
    processed_size: int  # Size of the result in bytes.
    media_type: str  # The media type of the result.
    filename: str  # The name of the result.
    processing_time_ms: int  # Duration of the conversion in milliseconds.
    warnings: tuple[FidelityWarning, ...]  # What the target format cannot hold.
    container: str | None = None  # Set if the result is an archive of the files.
    file_count: int  # Files in the `container`; without one, files that were sent.
    width: int | None = None  # Width of the first image in pixels; null for vectors and documents.
    height: int | None = None  # Height of the first image in pixels; null for vectors and documents.
    pages: int | None = None  # Pages or frames, of all files.
    quality_used: int | None = None  # The quality that `max_bytes` led to.
    page_count: int | None = None  # Pages of the result of a tool.
    original_page_count: int | None = None  # Pages of all files that a tool received.
    deleted_pages: tuple[int, ...] = ()  # Deleted pages, counted from 1.
    outputs: tuple[OutputResult, ...] = ()  # The results in the ZIP, in the order of the field `outputs`.
    reduction_percent: float  # Size reduction in percent.
    download_url: str  # Path to download the result.
    request_id: str  # The request's id in the server's log.
    credits_remaining: int  # The balance after this request.


@dataclass(frozen=True, kw_only=True)
class Day:
    """Usage on a day (UTC)."""

    date: str
    conversions: int
    failed: int
    credits: int
    bytes_in: int  # Bytes.
    bytes_out: int  # Bytes.


@dataclass(frozen=True, kw_only=True)
class FidelityWarning:
    """A loss of fidelity: something that the target format cannot hold."""

    code: str
    message: str  # A sentence for people.


@dataclass(frozen=True, kw_only=True)
class FileError:
    """The error of a file's last conversion, which was not charged."""

    code: str
    message: str  # A sentence for people.
    reason: str | None = None
    retryable: bool
    param: str | None = None  # The invalid field.
    details: Mapping[str, Any] | None = None  # Values that explain the error.
    doc_url: str | None = None  # The documentation of the code.


@dataclass(frozen=True, kw_only=True)
class FileList:
    """Stored files, newest first."""

    files: tuple[StoredFile, ...]
    next_cursor: str | None = None  # The `cursor` of the next page; null on the last one.


@dataclass(frozen=True, kw_only=True)
class Formats:
    """All supported conversions."""

    conversions: tuple[Pair, ...]
    by_input_format: Mapping[str, tuple[str, ...]]
    total: int


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A conversion that was not run, because of `dry_run`, and what its result would be, as far as the file's …"""

    input_format: str
    output_format: str
    path: tuple[str, ...]  # The steps.
    losses: tuple[str, ...]  # As in `GET /formats/{input}/{output}`.
    options: Mapping[str, Any]  # The options with their values or defaults.
    credits: int  # The price of the conversion.
    width: int | None = None  # Width of the result; null for vectors and documents.
    height: int | None = None  # Height of the result; null for vectors and documents.
    pages: int | None = None  # Pages or frames of the result.
    container: str | None = None  # Set if the result would be an archive.
    file_count: int  # Files in the `container`.
    warnings: tuple[FidelityWarning, ...]  # What the result would lose, as far as the header shows it.
    outputs: tuple[Mapping[str, Any], ...] = ()  # The results, in the order of the field `outputs`.


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request that is processed in the background."""

    job_id: str  # The job's id.
    status: str
    operation: str  # As in the usage report.
    input_format: str | None = None  # Null for a batch, and until a `url` is fetched.
    output_format: str
    test: bool  # Whether a test key was used.
    tag: str | None = None  # The field `tag` of the request.
    progress: float | None = None  # The share of the files of a batch that are done.
    position: int | None = None  # Jobs of the account ahead of this one, while it is queued.
    attempts: int  # How often it was started; at most 3 times.
    created_at: str  # UTC.
    started_at: str | None = None  # UTC.
    finished_at: str | None = None  # UTC.
    expires_at: str | None = None  # When an ended job is deleted.
    # What the JSON response of the request has as `data`, once the job is completed.
    result: Mapping[str, Any] | None = None
    error: JobFailure | None = None
    webhook_url: str | None = None  # The field `webhook_url` of the request.
    deleted: bool | None = None  # Whether the job was deleted.


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """Why a job has failed."""

    code: str  # For programs.
    message: str  # A sentence for people.
    retryable: bool  # Whether the same request may succeed later.
    param: str | None = None  # The invalid field.
    reason: str | None = None  # Narrows the code.
    details: Mapping[str, Any] | None = None  # Values that explain the error.
    doc_url: str  # The documentation of the code.
    request_id: str  # The id of the request that was accepted.


@dataclass(frozen=True, kw_only=True)
class JobList:
    """Jobs, newest first."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None  # For the query of the next page; null on the last one.


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key without its secret."""

    key_id: str  # The key's id.
    key_prefix: str  # The first characters of the key, to identify it.
    name: str
    created_at: str  # UTC.
    last_used_at: str | None = None  # UTC.
    expires_at: str | None = None  # When the key expires, if it was rotated.


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link to a result, which needs no API key."""

    url: str  # The URL for GET and HEAD.
    expires_at: str  # UTC.


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """A new API key."""

    key_id: str  # The key's id.
    key_prefix: str  # The first characters of the key, to identify it.
    name: str
    created_at: str | None = None  # UTC.
    last_used_at: str | None = None  # UTC.
    expires_at: str | None = None  # When the key expires, if it was rotated.
    api_key: str = field(repr=False)  # Shown only once.
    message: str  # A sentence for people.
    replaced_key_id: str | None = None  # The key's id.
    grace_period_seconds: int | None = None  # How long the replaced key stays valid, in seconds.
    email: str | None = None
    tier: str | None = None  # `free`, `paid` from the first purchase of credits on, or another plan of the service.
    credits_remaining: int | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A supported conversion."""

    input_format: str
    output_format: str
    count: int | None = None
    credits: int | None = None


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A preset of the account."""

    name: str  # The name of the preset.
    fields: Mapping[str, Any]  # The fields of requests that it keeps.
    created_at: str  # UTC.
    updated_at: str  # UTC.


@dataclass(frozen=True, kw_only=True)
class OptionDescription:
    """The description of a request field of one or more tools."""

    name: str
    type: str
    required: bool
    description: str
    example: int | float | str | bool | tuple[Any, ...] | Mapping[str, Any]
    schema: Mapping[str, Any]  # The JSON Schema of the value.
    minimum: float | None = None
    maximum: float | None = None
    output_formats: tuple[str, ...] = ()  # The output formats that it applies to.


@dataclass(frozen=True, kw_only=True)
class OutputResult:
    """One of several results, which are in a ZIP."""

    output_format: str  # The canonical name of the target format.
    processed_size: int  # Size of the result in bytes.
    filename: str  # The name of the result in the ZIP.
    offset: int  # Where the result begins in the ZIP, in bytes.
    media_type: str  # The media type of the result.
    warnings: tuple[FidelityWarning, ...]  # What the target format cannot hold.
    container: str | None = None  # Set if the result is an archive of its pages.
    file_count: int  # Files in the `container`.
    width: int | None = None  # Width in pixels; null for vectors.
    height: int | None = None  # Height in pixels; null for vectors.
    pages: int | None = None  # Pages or frames.
    quality_used: int | None = None  # The quality that `max_bytes` led to.
    download_url: str | None = None  # Path to download the result.


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """An open checkout."""

    checkout_url: str  # The page to open in a browser.
    session_id: str  # The payment provider's id of the checkout.
    expires_at: str  # UTC.
    purchase_id: str  # The id of the purchase.
    pack: str
    credits: int
    amount: int  # The price in cents.
    currency: str
    language: str  # The language of the checkout page.
    status: str


@dataclass(frozen=True, kw_only=True)
class RateLimit:
    """The account's rate limit, and its current state."""

    limit: int  # Requests per window.
    remaining: int
    reset: int  # End of the window in Unix time (seconds).
    window_seconds: int


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The response to a registration."""

    email: str
    verification_sent: bool
    message: str  # A sentence for people.


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The account's stored uploads and results, and its storage quota."""

    stored_bytes: int
    max_stored_bytes: int


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file and its conversion."""

    file_id: str  # The file's id.
    original_name: str  # The client's file name, without a path.
    extension: str  # The client's extension if it matches the content, else the format's usual one.
    input_format: str  # The format detected from the file's content.
    original_size: int  # Size of the input in bytes.
    batch_id: str | None = None  # The batch's id.
    source_file_id: str | None = None  # The file that was converted again to make this one.
    created_at: str  # UTC.
    processed_at: str | None = None  # UTC.
    expires_at: str  # UTC.
    output_format: str | None = None  # The canonical name of the target format.
    processed_size: int | None = None  # Size of the result in bytes.
    media_type: str | None = None  # The media type of the result.
    filename: str | None = None  # The name of the result.
    processing_time_ms: int | None = None  # Duration of the conversion in milliseconds.
    warnings: tuple[FidelityWarning, ...]  # What the target format cannot hold.
    container: str | None = None  # Set if the result is an archive of the files.
    file_count: int | None = None  # Files in the `container`; without one, files that were sent.
    width: int | None = None  # Width of the first image in pixels; null for vectors and documents.
    height: int | None = None  # Height of the first image in pixels; null for vectors and documents.
    pages: int | None = None  # Pages or frames, of all files.
    quality_used: int | None = None  # The quality that `max_bytes` led to.
    page_count: int | None = None  # Pages of the result of a tool.
    original_page_count: int | None = None  # Pages of all files that a tool received.
    deleted_pages: tuple[int, ...] = ()  # Deleted pages, counted from 1.
    outputs: tuple[OutputResult, ...] = ()  # The results in the ZIP, in the order of the field `outputs`.
    reduction_percent: float | None = None  # Size reduction in percent.
    download_url: str | None = None  # Path to download the result.
    error: FileError | None = None  # The error of the last conversion, if it failed.
    status: str  # `processed` after a successful conversion.
    size: int  # Bytes.
    total: int | None = None  # Number of files in the batch.
    result_file_id: str | None = None  # The file with the result.


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A conversion tool."""

    id: str
    name: str
    category: str
    description: str
    endpoint: str
    credits: int
    input_formats: tuple[str, ...]
    output_formats: tuple[str, ...]
    options: tuple[OptionDescription, ...]
    files: Mapping[str, Any] | None = None
    plugin: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage in a period."""

    start: str  # UTC.
    end: str  # UTC.
    total_conversions: int
    successful_conversions: int
    failed_conversions: int
    credits_used: int
    bytes_in: int  # Bytes.
    bytes_out: int  # Bytes.
    bytes_total: int  # Bytes.
    by_operation: Mapping[str, int]  # Conversions by endpoint, or by the id of a tool, with `_` for `-`.
    by_conversion: tuple[Pair, ...]  # Most frequent first.
    by_day: tuple[Day, ...]
    period: str
