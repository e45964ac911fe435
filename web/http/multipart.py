"""Multipart forms, parsed as they arrive: files become work files, text fields stay in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from engine.formats import FileFormat
from engine.registry import Registry
from storage.descriptors import run_in_thread
from web.api.errors import FileTooLarge, InvalidParameter
from web.api.fields import check_known
from web.api.operations import FormFields
from web.http.bodies import malformed, parse_header
from web.services.conversion_request import Upload
from web.services.work_files import WorkFile

_MAX_PARTS = 100
_MAX_TEXT = 64 << 10  # bytes of a text field
_MAX_NAME = 4096  # characters of a file name that are read
_MAX_TOTAL = 512 << 20  # bytes of all files together
_FRAMING = 256 << 10  # bytes of a form in addition to its files

CreateFile: TypeAlias = Callable[[], WorkFile]
"""Creates an empty file. Raises RateLimited."""


@dataclass(frozen=True)
class Form:
    """A complete form: files with their field names, in the order sent, and text fields."""

    files: Sequence[tuple[str, Upload]]
    texts: Mapping[str, str]

    @property
    def uploads(self) -> tuple[Upload, ...]:
        """All files of all fields."""
        return tuple(upload for _, upload in self.files)

    def file(self, field: str) -> Upload:
        """The only file of the field. Raises InvalidParameter if there are none or several."""
        found = [upload for name, upload in self.files if name == field]
        if len(found) != 1:
            reason, count = ("duplicate", "more than one file") if found else ("missing", "no file")
            raise InvalidParameter(f"The form has {count} in the field {field}.", reason=reason, param=field)
        return found[0]


class MultipartBody:
    """The body of a multipart request. Its files are closed when the request ends.

    `texts` are the names of its text fields. A file has at most `max_file_size` bytes. All methods raise
    InvalidParameter, InvalidOption and FileTooLarge.
    """

    def __init__(
        self,
        declared: FormFields,
        texts: tuple[str, ...],
        content_type: str,
        max_file_size: int,
        create_file: CreateFile,
        registry: Registry,
    ) -> None:
        self._declared = declared
        self._texts = texts
        self._content_type = content_type
        self._max_file_size = max_file_size
        self._create_file = create_file
        self._registry = registry
        self._parser: FormParser | None = None
        self._received = 0

    async def start(self, length: int | None) -> None:
        self._check_size(length or 0)
        self._parser = FormParser(
            self._content_type,
            files=self._declared.file.names,
            texts=self._texts,
            max_file_size=self._max_file_size,
            create_file=self._create_file,
            registry=self._registry,
        )

    async def write(self, chunk: bytes) -> None:
        """Raises RateLimited and NoSpace if there is no space for the files."""
        assert self._parser is not None
        self._received += len(chunk)
        self._check_size(self._received)
        await self._parser.feed(chunk)

    def close(self) -> None:
        if self._parser is not None:
            self._parser.close()

    @property
    def form(self) -> Form:
        """The complete form."""
        assert self._parser is not None
        return self._parser.form()

    def _check_size(self, length: int) -> None:
        if length > self._max_size():
            raise FileTooLarge(self._max_file_size)

    def _max_size(self) -> int:
        """Maximum size of the body in bytes."""
        files = self._max_file_size * self._declared.file.maximum
        return min(files, max(self._max_file_size, _MAX_TOTAL)) + _FRAMING


@dataclass
class _FilePart:
    field: str
    filename: str
    file: WorkFile
    size: int = 0


class FormParser:
    """Parses a multipart body incrementally.

    Parts of the fields `files` are files, with a file name or without; parts of the fields `texts` are text.
    """

    def __init__(
        self,
        content_type: str,
        *,
        files: tuple[str, ...],
        texts: tuple[str, ...],
        max_file_size: int,
        create_file: CreateFile,
        registry: Registry,
    ) -> None:
        self._create_file = create_file
        self._registry = registry
        self._file_fields = files
        self._text_fields = texts
        self._max_file_size = max_file_size
        self._parser = self._multipart_parser(content_type)
        self._files: list[_FilePart] = []
        self._unwritten: list[tuple[WorkFile, bytes]] = []
        self._uploads: list[tuple[str, Upload]] = []
        self._texts: dict[str, bytearray] = {}
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._consume: Callable[[bytes], None] = _ignore
        self._complete = False

    async def feed(self, chunk: bytes) -> None:
        """Parses the next bytes, and writes those of files."""
        was_complete = self._complete
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise malformed("The body is not well-formed multipart/form-data.") from error
        for file, data in self._unwritten:
            await file.write(data)
        self._unwritten.clear()
        if self._complete > was_complete:
            self._uploads = [(part.field, await self._upload(part)) for part in self._files]

    def form(self) -> Form:
        """The form. Raises InvalidParameter, reason `truncated`, if it is incomplete."""
        if not self._complete:
            raise malformed("The body ends before its last boundary.", reason="truncated")
        return Form(self._uploads, {name: _decode(name, value) for name, value in self._texts.items()})

    def close(self) -> None:
        """Closes the files."""
        for part in self._files:
            part.file.close()

    async def _upload(self, part: _FilePart) -> Upload:
        """The complete file, identified."""
        await part.file.flush()
        identified: FileFormat | Exception
        try:
            identified = await self._identify(part.file, part.filename)
        except Exception as error:
            identified = error
        return Upload(part.file, part.filename, part.size, identified)

    async def _identify(self, file: WorkFile, filename: str) -> FileFormat:
        if file.in_memory:
            return self._registry.identify_content(file.read(), filename)
        return await run_in_thread(file.descriptor, self._registry.identify_descriptor, filename)

    def _multipart_parser(self, content_type: str) -> MultipartParser:
        media_type, parameters = parse_header(content_type)
        boundary = parameters.get(b"boundary")
        if media_type != b"multipart/form-data" or not boundary:
            raise malformed("The body must be multipart/form-data with a boundary.", reason="content_type")
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begin,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": lambda data, start, end: self._consume(data[start:end]),
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise malformed("The boundary is too long.") from error

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise malformed(f"The form has more than {_MAX_PARTS} parts.", reason="too_many_parts")
        self._disposition = b""
        self._consume = _ignore

    def _header_end(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        kind, parameters = parse_header(self._disposition)
        name = parameters.get(b"name")
        if kind != b"form-data" or name is None:
            raise malformed("A part of the form has no name.")
        field = name.decode("utf-8", "replace")
        if field in self._file_fields:
            filename = _filename(self._disposition, parameters) or field
            part = _FilePart(field, filename, self._create_file())
            self._files.append(part)
            self._consume = lambda data: self._receive(part, data)
        else:
            check_known([field], (*self._file_fields, *self._text_fields))
            if field in self._texts:
                raise InvalidParameter(f"{field} was sent twice.", reason="duplicate", param=field)
            text = self._texts[field] = bytearray()
            self._consume = lambda data: _append(field, text, data)

    def _receive(self, part: _FilePart, data: bytes) -> None:
        part.size += len(data)
        if part.size > self._max_file_size:
            raise FileTooLarge(self._max_file_size)
        self._unwritten.append((part.file, data))

    def _end(self) -> None:
        self._complete = True


def _ignore(_data: bytes) -> None:
    """Ignores the data of unknown fields."""


def _append(field: str, text: bytearray, data: bytes) -> None:
    if len(text) + len(data) > _MAX_TEXT:
        raise InvalidParameter(f"{field} is longer than {_MAX_TEXT} bytes.", reason="too_long", param=field)
    text += data


def _decode(field: str, value: bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidParameter(f"{field} is not UTF-8 text.", reason="encoding", param=field) from None


def _filename(disposition: bytes, parameters: Mapping[bytes, bytes]) -> str:
    """The client's file name. Some clients send a non-ASCII name as `filename*` only."""
    plain = parameters.get(b"filename")
    if plain is not None:
        return plain.decode("utf-8", "replace")[:_MAX_NAME]
    extended = re.search(rb";\s*filename\*\s*=\s*utf-8''([^;\s]+)", disposition, re.IGNORECASE)
    return unquote(extended[1].decode("ascii", "replace"))[:_MAX_NAME] if extended else ""
