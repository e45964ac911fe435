"""Formats that are ZIP archives: the names of their entries, and limits on what they unpack to."""

from __future__ import annotations

import struct
import zipfile
import zlib
from io import BytesIO
from typing import NamedTuple
from urllib.parse import unquote

from engine import Content, CorruptInput, TooLarge, once_per_file

SIGNATURE = b"PK\x03\x04"
# In both: how an entry is compressed, and its size so; lengths of the name and of the extra field.
_LOCAL_HEADER = struct.Struct("<8xH8xI4xHH")
_DIRECTORY_HEADER = struct.Struct("<4s6xH8xI4xHHH8xI")  # also a signature, the length of the comment, and the offset
_DIRECTORY_END = struct.Struct("<12xII")  # size and offset of the directory
_TAIL = 65_557  # bytes at the end, in which the directory ends: its end and the longest comment
_MAX_DIRECTORY = 1 << 18  # bytes that are searched for names
_HEAD = 1 << 16  # bytes of a file without directory that are searched for names
_MAX_ENTRIES = 10_000
_MAX_TYPE = 100  # bytes of a media type
_MAX_ENTRY = 512  # bytes in the directory, on average
_MARKUP = (".xml", ".rels")
# Bytes of all entries together, of markup, which is slow to read.
_MAX_UNPACKED = 512 << 20
_MAX_MARKUP = 64 << 20
_ENCRYPTED = 1  # a flag of an entry


class _Entry(NamedTuple):
    """An entry of an archive: whether it is compressed, its size so in bytes, and the offset of its header."""

    name: str
    compressed: bool
    size: int
    offset: int


@once_per_file
def mimetype(content: Content) -> bytes:
    """The media type in the file of an archive that is named mimetype, as OpenDocument has it; otherwise empty."""
    entry = next((one for one in _entries(content) if one.name == "mimetype"), None)
    if entry is None:
        return b""
    start = entry.offset + _LOCAL_HEADER.size
    header = content[entry.offset : start]
    if len(header) < _LOCAL_HEADER.size:
        return b""
    *_, name, extra = _LOCAL_HEADER.unpack(header)
    start += name + extra
    found = bytes(content[start : start + min(entry.size, _MAX_TYPE)])
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(found, _MAX_TYPE) if entry.compressed else found
    except zlib.error:
        return b""


def is_complete(content: Content) -> bool:
    """Whether an archive has a directory, which is at its end."""
    return _find_directory(content) is not None


def names(content: Content) -> list[str]:
    """The names of the entries of an archive: at most those in the first 256 KiB of its directory.

    Of a truncated archive, those that begin in the first 64 KiB. Empty if the file is no archive.
    """
    return [entry.name for entry in _entries(content)]


@once_per_file
def _entries(content: Content) -> list[_Entry]:
    if content[: len(SIGNATURE)] != SIGNATURE:
        return []
    described = _find_directory(content)
    if described is None:
        return _entries_in_head(content[:_HEAD])
    offset, size = described
    directory = content[offset : offset + min(size, _MAX_DIRECTORY)]
    found = []
    position = 0
    while position + _DIRECTORY_HEADER.size <= len(directory):
        signature, method, packed, name, extra, comment, header = _DIRECTORY_HEADER.unpack_from(directory, position)
        if signature != b"PK\x01\x02":
            break
        position += _DIRECTORY_HEADER.size
        text = directory[position : position + name].decode("utf-8", "replace")
        found.append(_Entry(text, bool(method), packed, header))
        position += name + extra + comment
    return found


def _find_directory(content: Content) -> tuple[int, int] | None:
    """The offset and size of the directory in bytes; None if there is none."""
    tail = content[-_TAIL:]
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + _DIRECTORY_END.size:
        return None
    size, offset = _DIRECTORY_END.unpack_from(tail, end)
    return offset, size


def _entries_in_head(head: bytes) -> list[_Entry]:
    found = []
    position = 0
    while position >= 0 and position + _LOCAL_HEADER.size <= len(head):
        method, packed, length, _ = _LOCAL_HEADER.unpack_from(head, position)
        start = position + _LOCAL_HEADER.size
        text = head[start : start + length].decode("utf-8", "replace")
        found.append(_Entry(text, bool(method), packed, position))
        position = head.find(SIGNATURE, start + length)  # names that overlap would take time with the square
    return found


def open_checked(data: bytes, *, limit_markup: bool = False) -> zipfile.ZipFile:
    """Opens an archive.

    Raises TooLarge if it has too many entries or unpacks to too much, of markup with `limit_markup` to much less,
    CorruptInput if it is damaged or encrypted.
    An entry unpacks to no more bytes than its header states, because the reader stops there.
    """
    _, size = _find_directory(data) or (0, 0)
    if size > _MAX_ENTRIES * _MAX_ENTRY:
        raise _too_many()
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OSError) as error:
        raise CorruptInput("The ZIP archive is damaged.") from error
    entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise _too_many()
    unpacked = sum(entry.file_size for entry in entries)
    markup = sum(entry.file_size for entry in entries if entry.filename.endswith(_MARKUP)) if limit_markup else 0
    for size, limit in ((unpacked, _MAX_UNPACKED), (markup, _MAX_MARKUP)):
        if size > limit:
            message = f"The archive unpacks to more than {limit} bytes."
            raise TooLarge(message, reason="bytes", details={"max_unpacked_size": limit})
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise CorruptInput("Files in the archive are encrypted.")
    return archive


def read_file(archive: zipfile.ZipFile, url: str) -> bytes | None:
    """The file of an archive to which a relative URL leads; None if it is missing or damaged."""
    try:
        return archive.read(unquote(url.partition("#")[0].partition("?")[0]).removeprefix("./").lstrip("/"))
    except (KeyError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error):
        return None


def _too_many() -> TooLarge:
    message = f"The archive has more than {_MAX_ENTRIES} files."
    return TooLarge(message, reason="elements", details={"max_files": _MAX_ENTRIES})
