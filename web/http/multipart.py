"""Files that arrive: collected in memory for a while, and brought to the disk in one go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from engine.formats import FileFormat
from web.api.errors import FileTooLarge, InvalidParameter
from web.services.conversion_request import Upload
from web.services.files import extension_of

Identify = Callable[[Path], FileFormat]
"""Finds out the format of a file; reads from disk. Raises UnknownFormat."""


class IncomingFile:
    """A part that goes to disk. Between writes it is closed, so whoever gives up has nothing to give back."""

    def __init__(self, path: Path, filename: str, max_size: int) -> None:
        self._path = path
        self._filename = filename
        self._max_size = max_size
        self._size = 0
        self._pending = bytearray()

    def take(self, data: bytes) -> None:
        """Takes the next bytes. Raises FileTooLarge."""
        self._size += len(data)
        if self._size > self._max_size:
            raise FileTooLarge(self._max_size)
        self._pending += data

    def pending(self) -> int:
        """Bytes that are not on disk yet."""
        return len(self._pending)

    def save(self) -> None:
        """Brings what is pending to the disk."""
        with self._path.open("ab", buffering=0) as file:
            unwritten = memoryview(self._pending)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
        self._pending = bytearray()

    def upload(self, identify: Identify) -> Upload:
        """The whole file, which is on the disk now."""
        self.save()
        identified: FileFormat | Exception
        try:
            identified = identify(self._path)
        except Exception as error:
            identified = error
        return Upload(self._path, self._filename, self._size, identified)


_MAX_PARTS = 100
_MAX_FIELD = 64 << 10  # bytes of a text field
_BLOCK = 1 << 20  # bytes written at a time
_MAX_NAME = 4096  # characters of a file name worth looking at


@dataclass(frozen=True)
class Form:
    """A form that has arrived: its files with their fields, in the order sent, and its text fields."""

    files: Sequence[tuple[str, Upload]]
    fields: Mapping[str, str]

    @property
    def uploads(self) -> tuple[Upload, ...]:
        """All files, of whichever field."""
        return tuple(upload for _, upload in self.files)

    def file(self, field: str) -> Upload:
        """The one file of that field."""
        found = [upload for name, upload in self.files if name == field]
        if len(found) != 1:
            reason, message = ("duplicate", "was sent twice") if found else ("missing", "is missing")
            raise InvalidParameter(f"The file field {field} {message}.", reason=reason, param=field)
        return found[0]


class FormReader:
    """Takes the body of a multipart request piece by piece.

    Files are the parts of the fields `files`, with a file name or without; text those of `texts`. All other
    parts are passed over. What is wrong raises InvalidParameter, a large file raises FileTooLarge.
    """

    def __init__(
        self,
        content_type: str,
        folder: Path,
        *,
        files: tuple[str, ...],
        texts: tuple[str, ...],
        max_file_size: int,
        identify: Identify,
    ) -> None:
        self._folder = folder
        self._identify = identify
        self._file_fields = files
        self._text_fields = texts
        self._max_file_size = max_file_size
        self._parser = self._parser_for(content_type)
        self._files: list[tuple[str, IncomingFile]] = []
        self._uploads: list[tuple[str, Upload]] = []
        self._texts: dict[str, bytearray] = {}
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._take: Callable[[bytes], None] = _nothing
        self._ended = False

    async def feed(self, chunk: bytes) -> None:
        """Takes the next piece. What goes to disk goes in a thread, many pieces at a time."""
        over = self._ended
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _malformed("The body is no well-formed multipart/form-data.") from error
        if self._ended > over:
            await asyncio.to_thread(self._complete)
        elif sum(file.pending() for _, file in self._files) >= _BLOCK:
            await asyncio.to_thread(self._save)

    def finished(self) -> Form:
        """The form, once the body has ended."""
        if not self._ended:
            raise _malformed("The body ends before its last boundary.", reason="truncated")
        return Form(self._uploads, {name: _decoded(name, value) for name, value in self._texts.items()})

    def _save(self) -> None:
        for _, file in self._files:
            if file.pending():
                file.save()

    def _complete(self) -> None:
        self._uploads = [(field, file.upload(self._identify)) for field, file in self._files]

    def _parser_for(self, content_type: str) -> MultipartParser:
        media_type, parameters = parse_options_header(content_type)
        boundary = parameters.get(b"boundary")
        if media_type != b"multipart/form-data" or not boundary:
            message = "The body must be multipart/form-data with a boundary."
            raise _malformed(message, reason="content_type")
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._open,
                    "on_part_data": lambda data, start, end: self._take(data[start:end]),
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _malformed("The boundary is too long.") from error

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise _malformed(f"The form has more than {_MAX_PARTS} parts.", reason="too_many_parts")
        self._disposition = b""
        self._take = _nothing

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._header = (bytearray(), bytearray())

    def _open(self) -> None:
        kind, parameters = parse_options_header(self._disposition)
        name = parameters.get(b"name")
        if kind != b"form-data" or name is None:
            raise _malformed("A part of the form has no name.")
        field = name.decode("utf-8", "replace")
        if field in self._file_fields:
            filename = _filename(self._disposition, parameters) or field
            path = self._folder / ".".join(filter(None, [f"input-{self._parts}", extension_of(filename)]))
            file = IncomingFile(path, filename, self._max_file_size)
            self._files.append((field, file))
            self._take = file.take
        elif field in self._text_fields:
            if field in self._texts:
                raise InvalidParameter(f"{field} was sent twice.", reason="duplicate", param=field)
            text = self._texts[field] = bytearray()
            self._take = lambda data: _append(field, text, data)

    def _end(self) -> None:
        self._ended = True


def _nothing(_data: bytes) -> None:
    """Passes over a part that nobody asked for."""


def _append(field: str, text: bytearray, data: bytes) -> None:
    if len(text) + len(data) > _MAX_FIELD:
        raise InvalidParameter(f"{field} is longer than {_MAX_FIELD} bytes.", reason="too_long", param=field)
    text += data


def _decoded(field: str, value: bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidParameter(f"{field} is no UTF-8 text.", reason="encoding", param=field) from None


def _filename(disposition: bytes, parameters: Mapping[bytes, bytes]) -> str:
    """The client's file name. Some clients still send a name beyond ASCII as `filename*` alone."""
    plain = parameters.get(b"filename")
    if plain is not None:
        return plain.decode("utf-8", "replace")[:_MAX_NAME]
    extended = re.search(rb";\s*filename\*\s*=\s*utf-8''([^;\s]+)", disposition, re.IGNORECASE)
    return unquote(extended[1].decode("ascii", "replace"))[:_MAX_NAME] if extended else ""


def _malformed(message: str, *, reason: str = "malformed") -> InvalidParameter:
    return InvalidParameter(message, reason=reason)
