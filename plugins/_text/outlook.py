"""Mails as Outlook stores them: compound files with a stream for each property (MS-OXMSG)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO

import olefile

from engine import CorruptInput, FidelityWarning, decode_text
from plugins._text import mails
from plugins._text.mails import Attachment, Mail

_PROPERTY = struct.Struct("<HHIQ")  # type, identifier, flags and value
_HEAD_OF_MAIL = 32  # bytes before the properties
_HEAD_OF_RECIPIENT = 8
# Types of properties.
_UNICODE = 0x1F
_TEXT = 0x1E  # in the code page of the mail
_BINARY = 0x102
# Identifiers of properties.
_SUBJECT = 0x0037
_SENDER = ((0x0C1A,), (0x5D01, 0x0C1F))  # the name, and addresses
_RECIPIENT = ((0x3001,), (0x39FE, 0x3003))
_KIND = 0x0C15
_KINDS = {1: "To", 2: "Cc"}
_TIMES = (0x0039, 0x0E06)  # when the mail was sent, and when it came
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_BODY = 0x1000
_HTML = 0x1013
_RTF = 0x1009
_CODE_PAGES = (0x3FDE, 0x3FFD)
_UTF_8 = 65001
_FILE = 0x3701
_FILE_NAMES = (0x3707, 0x3704, 0x3001)
_MEDIA_TYPE = 0x370E
_CONTENT_ID = 0x3712


class _Storage:
    """The properties of a mail, of a recipient or of an attached file."""

    def __init__(self, file: olefile.OleFileIO, path: str = "") -> None:
        self._file = file
        self._path = path

    def text(self, *identifiers: int) -> str:
        """The first of the properties that is a text; empty if there is none."""
        for identifier in identifiers:
            if data := self.data(identifier, _UNICODE):
                return data.decode("utf-16-le", "replace").rstrip("\0")
            if data := self.data(identifier, _TEXT):
                return self.decode(data).rstrip("\0")
        return ""

    def data(self, identifier: int, kind: int = _BINARY) -> bytes:
        """The bytes of a property; empty if it is not there."""
        return self._stream(f"{self._path}__substg1.0_{identifier:04X}{kind:04X}")

    def numbers(self, head: int) -> dict[int, int]:
        """The numbers and times among the properties, which begin after a head, by their identifiers."""
        stream = self._stream(f"{self._path}__properties_version1.0")[head:]
        entries = _PROPERTY.iter_unpack(stream[: len(stream) // _PROPERTY.size * _PROPERTY.size])
        return {identifier: value for _, identifier, _, value in entries}

    def decode(self, data: bytes) -> str:
        """Text in a code page of the mail, or in one that is likely."""
        numbers = _Storage(self._file).numbers(_HEAD_OF_MAIL)
        page = next((numbers[one] for one in _CODE_PAGES if one in numbers), _UTF_8)
        try:
            return data.decode("utf-8" if page == _UTF_8 else f"cp{page}")
        except (LookupError, ValueError):
            return decode_text(data)

    def person(self, names: Sequence[int], addresses: Sequence[int]) -> str:
        """The name of a sender or recipient, and an address that is one of the internet."""
        name, address = self.text(*names), self.text(*addresses)
        return f"{name} <{address}>".strip() if "@" in address and address != name else name

    def below(self, name: str) -> list[_Storage]:
        """The storages whose names begin so, in their order."""
        entries = self._file.listdir(streams=False, storages=True)
        paths = sorted(f"{entry[0]}/" for entry in entries if len(entry) == 1 and entry[0].startswith(name))
        return [_Storage(self._file, path) for path in paths]

    def _stream(self, path: str) -> bytes:
        return bytes(self._file.openstream(path).read()) if self._file.exists(path) else b""


def parse(data: bytes) -> Mail:
    """Reads a mail. Raises CorruptInput. Issues a warning if it has the styles of its text only in RTF."""
    try:
        with olefile.OleFileIO(BytesIO(data)) as file:
            return _read(_Storage(file))
    except (OSError, ValueError, OverflowError) as error:
        raise CorruptInput("The mail is damaged.") from error


def _read(top: _Storage) -> Mail:
    numbers = top.numbers(_HEAD_OF_MAIL)
    time = next((numbers[one] for one in _TIMES if numbers.get(one)), 0)
    fields = {"Subject": top.text(_SUBJECT), "From": top.person(*_SENDER)}
    for recipient in top.below("__recip_version1.0_#"):
        if kind := _KINDS.get(recipient.numbers(_HEAD_OF_RECIPIENT).get(_KIND, 0)):
            fields[kind] = ", ".join(filter(None, (fields.get(kind), recipient.person(*_RECIPIENT))))
    fields["Date"] = format_datetime(_EPOCH + timedelta(microseconds=time // 10)) if time else ""
    html = top.decode(top.data(_HTML)) or top.text(_HTML)
    text = top.text(_BODY)
    if not html and top.data(_RTF):
        if not text:
            raise CorruptInput("The mail has its text only in RTF, which is not read.")
        FidelityWarning.issue("effects_dropped", "The styles of the text, which the mail has in RTF, are not shown.")
    attachments = []
    for file in top.below("__attach_version1.0_#"):
        name = file.text(*_FILE_NAMES) or "file"
        content_id = file.text(_CONTENT_ID).strip("<>")
        attachments.append(Attachment(name, file.text(_MEDIA_TYPE), file.data(_FILE), content_id))
    fields = {name: mails.one_line(value) for name, value in fields.items() if value}
    return Mail(fields, [html or mails.plain(text)], attachments)
