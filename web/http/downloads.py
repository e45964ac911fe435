"""Responses with a file. Stored results: whole, conditional (ETag), or a range (RFC 9110, section 14)."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence

from engine.outcome import Outcome, OutputResult
from storage.tables.files import File
from web.api.errors import InvalidParameter, NotFound, RangeNotSatisfiable
from web.api.headers import DOWNLOAD_HEADERS, INLINE_HEADERS, content_disposition, content_type, warning_codes
from web.api.operations import ZIP
from web.http.handler import BaseHandler
from web.services.files.files import result_of
from web.services.files.zip_archive import Entry, zip_blocks

_RANGE = re.compile(r"\s*+bytes\s*+=\s*+([0-9]{0,18}+)\s*+-\s*+([0-9]{0,18}+)\s*+", re.ASCII | re.IGNORECASE)


async def send_file(
    handler: BaseHandler,
    blocks: AsyncIterator[bytes],
    outcome: Outcome | OutputResult,
    size: int | None = None,
    *,
    inline: bool = False,
) -> None:
    """Sends a result, or a part of `size` bytes of it: for the client to save, or `inline` to show."""
    remaining = outcome.processed_size if size is None else size
    handler.set_header("Content-Length", str(remaining))
    _set_headers(handler, outcome.filename, outcome.media_type, inline=inline)
    if codes := warning_codes(warning.code for warning in outcome.warnings):
        handler.set_header("X-Warnings", ", ".join(codes))
    if outcome.width is not None:
        handler.set_header("X-Width", str(outcome.width))
        handler.set_header("X-Height", str(outcome.height))
    if handler.request.method == "HEAD":
        return
    async for block in blocks:
        handler.write(block)
        remaining -= len(block)
        if remaining > 0:  # the last block is sent with the end, and with the headers if it is the only one
            await handler.flush()


def _set_headers(handler: BaseHandler, filename: str, media_type: str, *, inline: bool = False) -> None:
    handler.set_header("Content-Type", content_type(media_type))
    handler.set_header("Content-Disposition", content_disposition(filename, "inline" if inline else "attachment"))
    for name, value in (INLINE_HEADERS if inline else DOWNLOAD_HEADERS).items():
        handler.set_header(name, value)
    if (credits := handler.authorization.credits_remaining) is not None:
        handler.set_header("X-Credits-Remaining", str(credits))


async def send_archive(handler: BaseHandler, filename: str, entries: Sequence[Entry]) -> None:
    """Sends a ZIP of results, which is made meanwhile. Raises NotFound and StoreUnavailable.

    Closes the connection if the ZIP cannot be completed: clients would otherwise take it for a complete one.
    """
    _set_headers(handler, filename, ZIP)
    if handler.request.method == "HEAD":
        return
    started = False
    try:
        async for block in zip_blocks(entries, handler.services.files.read):
            started = True
            handler.write(block)
            await handler.flush()
    except BaseException:
        if started:
            handler.connection.close()
        raise
    if handler.request.version == "HTTP/1.0":  # it has no other sign of the end of a body of unknown size
        await handler.finish()
        handler.connection.close()


async def send_and_delete(handler: BaseHandler, file_id: str) -> None:
    """Sends the stored result of a file, and deletes the file, even if the client disconnects."""
    files = handler.services.files
    account = handler.client().id
    try:
        outcome, blob = result_of(await files.find(account, file_id))
        await send_file(handler, files.read(blob, 0, outcome.processed_size), outcome)
    finally:
        await asyncio.shield(files.delete(account, file_id))  # the disconnection may cancel the request meanwhile


def set_validator(handler: BaseHandler, file_id: str) -> str:
    """Sets the headers by which clients request ranges of a stored result. Returns its entity tag."""
    etag = f'"{file_id}"'  # the result of a file id never changes
    handler.set_header("Accept-Ranges", "bytes")
    handler.set_header("ETag", etag)
    return etag


async def send_stored(handler: BaseHandler, file: File, *, inline: bool = False, output: int | None = None) -> None:
    """Sends the stored result of a file, or the requested range of it: to be saved, or shown by the browser.

    Of several results, it is the one with the number `output`, counted from 1, or a ZIP of all. Raises NotFound,
    RangeNotSatisfiable, and InvalidParameter unless the result may be shown.
    """
    whole, blob = result_of(file)
    outcome: Outcome | OutputResult = whole if output is None else _output_of(whole, output)
    first = 0 if isinstance(outcome, Outcome) else outcome.offset
    size = outcome.processed_size
    if inline and not _may_be_shown(outcome):
        message = "Only images of pixels and PDFs can be shown inline."
        raise InvalidParameter(message, reason="unsupported", param="disposition")
    etag = set_validator(handler, file.file_id if output is None else f"{file.file_id}-{output}")
    if handler.request.method in ("GET", "HEAD") and handler.check_etag_header():
        handler.set_status(304)
        return
    part = _range_of(handler, size, etag) or range(size)
    if len(part) < size:
        handler.set_status(206)
        handler.set_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{size}")
    blocks = handler.services.files.read(blob, first + part.start, first + part.stop)
    await send_file(handler, blocks, outcome, len(part), inline=inline)


def _output_of(outcome: Outcome, number: int) -> OutputResult:
    """The result with this number in a ZIP. Raises NotFound."""
    outputs = outcome.outputs or ()
    found = outputs[number - 1] if number <= len(outputs) else None
    if found is None or found.offset + found.processed_size > outcome.processed_size:  # a job has reported both
        raise NotFound(f"The file has no output {number}.", param="output")
    return found


def _may_be_shown(outcome: Outcome | OutputResult) -> bool:
    """Whether browsers can show the result without running scripts in it: an image of pixels, or a PDF."""
    is_image = outcome.width is not None and outcome.media_type.startswith("image/")
    return is_image or outcome.media_type == "application/pdf"


def _range_of(handler: BaseHandler, size: int, etag: str) -> range | None:
    headers = handler.request.headers
    if handler.request.method != "GET" or headers.get("If-Range", etag) != etag:
        return None
    return requested_range(headers.get("Range"), size)


def requested_range(header: str | None, size: int) -> range | None:
    """The range that a Range header requests of a file of `size` bytes; None for the whole file.

    Headers with several ranges and malformed headers request the whole file. Raises RangeNotSatisfiable for a range
    that starts after the end.
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise RangeNotSatisfiable(size)
    return range(start, end)
