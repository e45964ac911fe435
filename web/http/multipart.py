"""Multipart forms, parsed as they arrive: files become work files, text fields stay in memory."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState

from engine.executor.detector import Detector
from engine.options import unknown_option
from web.api.errors import FileTooLarge, InvalidParameter, malformed
from web.api.headers import extended_filename, parse_header
from web.api.operations import FileField
from web.services.conversions.conversion_request import MAX_TOTAL, Upload, identify
from web.services.files.work_files import WorkFile

_MAX_PARTS = 128  # a tool takes up to 100 files
_MAX_BOUNDARIES = 1000  # lines that begin with the boundary; the parser takes long for those that do not end a part
_MAX_TEXT = 64 << 10  # bytes of a text field
_MAX_NAME = 4096  # characters of a file name that are read
_MAX_PATH = 1024  # bytes of a file without a name that may be the name of one
_PATH = re.compile(
    r"@.+|(~|\.{1,2})?/.+|[A-Za-z]:[\\/].+"  # for curl, absolute, or from the home or the current folder
    r"|[\w. ()/\\-]{1,1000}\.\w{2,5}"  # relative, with the extension of a file
    r"|[^\s<>{}\"|*?/\\]+([/\\][^\s<>{}\"|*?]+|\.[A-Za-z]\w{1,4})"  # relative, without blanks
)
_NUMBERED = re.compile(r"(.*)\[\d{1,3}\]", re.ASCII)  # how PHP names the files of an array
_FRAMING = 256 << 10  # bytes of text fields, headers and boundaries together
MAX_BODY = MAX_TOTAL + _FRAMING
"""Bytes of the largest body that any account may send."""


@dataclass(frozen=True)
class Form:
    """A complete form: files with their field names, in the order sent, and text fields."""

    files: Sequence[tuple[str, Upload]]
    texts: Mapping[str, str]

    def uploads(self, *fields: str) -> tuple[Upload, ...]:
        """The files of these fields, in the order sent."""
        return tuple(upload for name, upload in self.files if name in fields)

    def file(self, field: str) -> Upload:
        """The only file of the field. Raises InvalidParameter if there are none or several."""
        found = self.uploads(field)
        if len(found) != 1:
            reason, count = ("duplicate", "more than one file") if found else ("missing", "no file")
            raise InvalidParameter(f"The form has {count} in the field {field}.", reason=reason, param=field)
        return found[0]


@dataclass
class _FilePart:
    """A file. `text` is the content of a short one without a name, which may be the path of a file on the client."""

    field: str
    filename: str
    file: WorkFile
    size: int = 0
    text: bytes | None = None


def no_file(field: str, found: str) -> InvalidParameter:
    """The error of a field that has something else than a file."""
    message = f"The field {field} {found} instead of a file; with curl, send -F '{field}=@photo.jpg'."
    return InvalidParameter(message, reason="no_file", param=field)


class MultipartBody:
    """The body of a multipart request, parsed incrementally. Its files are closed when the request ends.

    `boundary` separates its parts; without one, the body has another content type. Parts of the fields `files` are
    files, with a file name or without unless they may be text; parts of the fields `texts` are text. Other parts that
    have a file name are files with `other_files`. A file has at most `max_file_size` bytes, together with all that may
    be text. `length` is the expected size of the body in bytes, 0 if unknown. `create_file` creates a file. All methods
    raise InvalidParameter, InvalidOption and FileTooLarge.
    """

    def __init__(
        self,
        boundary: bytes,
        files: Sequence[FileField],
        texts: Collection[str],
        *,
        other_files: bool = False,
        max_file_size: int,
        length: int = 0,
        create_file: Callable[[], WorkFile],
        detector: Detector,
    ) -> None:
        self._create_file = create_file
        self._detector = detector
        self._file_fields = [name for field in files for name in field.names]
        self._may_be_text = [name for field in files for name in field.names if field.or_text]
        self._text_fields = texts
        self._other_files = other_files
        self._max_file_size = max_file_size
        all_files = max_file_size * sum(field.maximum for field in files if not field.or_text)
        self._max_size = min(all_files, max(max_file_size, MAX_TOTAL)) + _FRAMING
        if length > self._max_size:
            raise FileTooLarge(max_file_size)
        if not boundary:
            raise malformed("The body must be multipart/form-data with a boundary.", reason="content_type")
        self._received = 0
        self._delimiter = b"\r\n--" + boundary
        self._latest = b""  # bytes received, which may end with a part of a delimiter
        self._boundaries = 0
        self._part_headers: list[tuple[bytearray, bytearray]] = []  # names and values
        self._part: _FilePart | str = ""  # the file, or the field of the text, that arrives
        self._parts = 0
        self._files: list[_FilePart] = []
        self._unwritten: list[tuple[WorkFile, bytes]] = []
        self._uploads: list[tuple[str, Upload]] = []
        self._texts: dict[str, bytearray] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_header_begin": lambda: self._part_headers.append((bytearray(), bytearray())),
                    "on_header_field": lambda data, start, end: self._part_headers[-1][0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._part_headers[-1][1].extend(data[start:end]),
                    "on_headers_finished": self._begin_part,
                    "on_part_data": lambda data, start, end: self._append(data[start:end]),
                },
            )
        except FormParserError as error:
            raise malformed("The boundary is too long.") from error

    async def write(self, chunk: bytes) -> None:
        """Parses the next bytes, and writes files. Raises RateLimited and NoSpace without space for them."""
        self._received += len(chunk)
        if self._received > self._max_size:
            raise FileTooLarge(self._max_file_size)
        was_complete = self._parser.state == MultipartState.END
        searched = self._latest + chunk
        self._latest = searched[1 - len(self._delimiter) :]
        self._boundaries += searched.count(self._delimiter)
        if self._boundaries > _MAX_BOUNDARIES:  # parts must not contain a line that begins with one (RFC 2046)
            raise malformed(f"The form has more than {_MAX_BOUNDARIES} boundaries.", reason="too_many_parts")
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise malformed("The body is not well-formed multipart/form-data.") from error
        for file, data in self._unwritten:
            await file.write(data)
        self._unwritten.clear()
        if self._parser.state == MultipartState.END and not was_complete:
            for part in self._files:
                text = (part.text or b"").decode("utf-8", "replace").strip()
                if _PATH.fullmatch(text):
                    raise no_file(part.field, f"has the text {text[:100]}")
                self._uploads.append((part.field, await identify(self._detector, part.file, part.filename)))

    def close(self) -> None:
        """Closes the files."""
        for part in self._files:
            part.file.close()
        self._parser.callbacks = {}  # they refer to this object, which the garbage collector would have to find

    @cached_property
    def form(self) -> Form:
        """The complete form. Raises InvalidParameter, reason `truncated`, if it is incomplete."""
        if self._parser.state != MultipartState.END:
            raise malformed("The body ends before its last boundary.", reason="truncated")
        texts = {}
        for name, value in self._texts.items():
            try:
                texts[name] = value.decode()
            except UnicodeDecodeError:
                raise InvalidParameter(f"{name} is not UTF-8 text.", reason="encoding", param=name) from None
        return Form(self._uploads, texts)

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise malformed(f"The form has more than {_MAX_PARTS} parts.", reason="too_many_parts")
        headers = {bytes(name).lower(): bytes(value) for name, value in self._part_headers}
        self._part_headers.clear()
        disposition = headers.get(b"content-disposition", b"")
        kind, parameters = parse_header(disposition)
        name = parameters.get(b"name")
        if kind != b"form-data" or name is None:
            raise malformed("A part of the form has no name.")
        field = name.decode("utf-8", "replace")
        if (numbered := _NUMBERED.fullmatch(field)) and f"{numbered[1]}[]" in self._file_fields:
            field = f"{numbered[1]}[]"
        plain = parameters.get(b"filename", b"").decode("utf-8", "replace")
        extended = extended_filename(disposition) if b"*" in disposition else ""
        sent = extended or plain  # .NET sends a name that is not ASCII in both ways
        is_other = self._other_files and sent and field not in self._text_fields
        if is_other or (field in self._file_fields and (sent or field not in self._may_be_text)):
            filename = sent[:_MAX_NAME] or field
            self._part = _FilePart(field, filename, self._create_file(), text=b"" if filename == field else None)
            self._files.append(self._part)
            return
        if field not in self._text_fields and sent:
            message = f"There is no field {field[:_MAX_NAME]}; send the file in the field {self._file_fields[0]}."
            available = {"available": self._file_fields}
            raise InvalidParameter(message, reason="unknown_parameter", param=field[:_MAX_NAME], details=available)
        if field not in self._text_fields:
            raise unknown_option(field, (*self._file_fields, *self._text_fields))
        if field in self._texts:
            raise InvalidParameter(f"{field} was sent twice.", reason="duplicate", param=field)
        self._texts[field] = bytearray()
        self._part = field

    def _append(self, data: bytes) -> None:
        """Adds data to the part that arrives."""
        part = self._part
        if isinstance(part, str):
            self._texts[part] += data
            if len(self._texts[part]) > _MAX_TEXT:
                raise InvalidParameter(f"{part} is longer than {_MAX_TEXT} bytes.", reason="too_long", param=part)
            return
        part.size += len(data)
        if part.text is not None:
            part.text = part.text + data if part.size <= _MAX_PATH else None
        if part.size > self._max_file_size:
            raise FileTooLarge(self._max_file_size)
        self._unwritten.append((part.file, data))
