"""Responses with a file. Stored results: whole, conditional (ETag), or a range (RFC 9110, section 14)."""

import asyncio
import re
from collections.abc import AsyncIterator

from engine.outcome import Outcome
from web.api.errors import RangeNotSatisfiable
from web.api.headers import DOWNLOAD_HEADERS, warning_codes
from web.http.handler import BaseHandler
from web.services.files import content_disposition

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


async def send_file(
    handler: BaseHandler, blocks: AsyncIterator[bytes], outcome: Outcome, size: int | None = None
) -> None:
    """Sends a result for the client to save: the whole, or a part of `size` bytes."""
    remaining = outcome.processed_size if size is None else size
    handler.set_header("Content-Type", outcome.media_type)
    handler.set_header("Content-Length", str(remaining))
    handler.set_header("Content-Disposition", content_disposition(outcome.filename))
    if codes := warning_codes(warning.code for warning in outcome.warnings):
        handler.set_header("X-Warnings", ", ".join(codes))
    if outcome.width is not None:
        handler.set_header("X-Width", str(outcome.width))
        handler.set_header("X-Height", str(outcome.height))
    for name, value in DOWNLOAD_HEADERS.items():
        handler.set_header(name, value)
    if (credits := handler.authorization.credits_remaining) is not None:
        handler.set_header("X-Credits-Remaining", str(credits))
    if handler.request.method == "HEAD":
        return
    async for block in blocks:
        handler.write(block)
        remaining -= len(block)
        if remaining > 0:  # the last block is sent with the end, and with the headers if it is the only one
            await handler.flush()


async def send_and_delete(handler: BaseHandler, file_id: str) -> None:
    """Sends the stored result of a file, and deletes the file, even if the client disconnects."""
    files, account = handler.services.files, handler.client().id
    try:
        outcome, blob = await files.processed(account, file_id)
        await send_file(handler, files.read(blob, 0, outcome.processed_size), outcome)
    finally:
        await asyncio.shield(files.delete(account, file_id))  # the disconnection may cancel the request meanwhile


def set_validator(handler: BaseHandler, file_id: str) -> str:
    """Sets the headers by which clients request ranges of a stored result. Returns its entity tag."""
    etag = f'"{file_id}"'  # the result of a file id never changes
    handler.set_header("Accept-Ranges", "bytes")
    handler.set_header("ETag", etag)
    return etag


async def send_stored(handler: BaseHandler, file_id: str) -> None:
    """Sends the stored result of a file, or the requested range of it. Raises NotFound, RangeNotSatisfiable."""
    files = handler.services.files
    outcome, blob = await files.processed(handler.client().id, file_id)
    size = outcome.processed_size
    etag = set_validator(handler, file_id)
    if handler.request.method in ("GET", "HEAD") and handler.check_etag_header():
        handler.set_status(304)
        return
    part = _range_of(handler, size, etag) or range(size)
    if len(part) < size:
        handler.set_status(206)
        handler.set_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{size}")
    await send_file(handler, files.read(blob, part.start, part.stop), outcome, len(part))


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
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable(size)
    return range(start, end)
