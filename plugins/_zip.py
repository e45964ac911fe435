"""The names of the files in a ZIP, by which its format is told, and limits on what it unpacks to."""

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from engine import Content, CorruptInput, TooLarge

SIGNATURE = b"PK\x03\x04"

_END = struct.Struct("<4s4xHHIIH")  # of the central directory: its entries, size and offset, and the comment's length
_END_SIGNATURE = b"PK\x05\x06"
_MAX_COMMENT = 1 << 16
_ENTRY = struct.Struct("<4s24xHHH12x")  # lengths of name, extra field and comment
_ENTRY_SIGNATURE = b"PK\x01\x02"
_MAX_DIRECTORY = 1 << 20  # bytes that are searched for names
_LOCAL_NAME = re.compile(rb"PK\x03\x04.{22}(..)..", re.DOTALL)
_MAX_HEAD = 1 << 16  # bytes of a truncated file that are searched for names
_MAX_FILES = 20_000
_MARKUP = (".xml", ".rels")
_MAX_MARKUP, _MAX_UNPACKED = 64 << 20, 512 << 20  # bytes of markup, which is slow to read, and of all files


def mimetype(content: Content) -> bytes:
    """The media type in the first file of a ZIP, named mimetype, as OpenDocument and EPUB have it; otherwise empty."""
    if content[:4] != SIGNATURE or content[30:38] != b"mimetype":
        return b""
    extra, size = int.from_bytes(content[28:30], "little"), int.from_bytes(content[22:26], "little")
    return bytes(content[38 + extra : 38 + extra + min(size, 100)])


def names(content: Content) -> frozenset[bytes]:
    """The names of files in a ZIP, at least of the first ones; of a truncated ZIP, those near its beginning."""
    if content[:4] != SIGNATURE:
        return frozenset()
    directory = _directory(content)
    if directory is not None:
        return frozenset(_listed(directory))
    head = content[:_MAX_HEAD]
    found = ((match.end(), int.from_bytes(match[1], "little")) for match in _LOCAL_NAME.finditer(head))
    return frozenset(head[start : start + length] for start, length in found)


def is_complete(content: Content) -> bool:
    """Whether a ZIP has a directory, which is at its end."""
    return _directory(content) is not None


def _directory(content: Content) -> bytes | None:
    """At least the beginning of the directory; None if there is none."""
    tail = content[-_END.size - _MAX_COMMENT :]
    position = tail.rfind(_END_SIGNATURE)
    if not 0 <= position <= len(tail) - _END.size:
        return None
    _, _, _, size, offset, _ = _END.unpack_from(tail, position)
    return content[offset : offset + min(size, _MAX_DIRECTORY)]


def _listed(directory: bytes) -> Iterator[bytes]:
    offset = 0
    while offset + _ENTRY.size <= len(directory):
        signature, name, extra, comment = _ENTRY.unpack_from(directory, offset)
        if signature != _ENTRY_SIGNATURE:
            return
        offset += _ENTRY.size
        yield directory[offset : offset + name]
        offset += name + extra + comment


def check(data: bytes) -> ZipFile:
    """Opens a ZIP. Raises CorruptInput for one without a directory, TooLarge for one with too much in it."""
    try:
        archive = ZipFile(BytesIO(data))
    except (BadZipFile, ValueError, NotImplementedError) as error:
        raise CorruptInput("The file is truncated, or its directory is damaged.") from error
    files = archive.infolist()
    if len(files) > _MAX_FILES:
        message = f"The file contains {len(files)} others; the limit is {_MAX_FILES}."
        raise TooLarge(message, reason="elements", details={"max_files": _MAX_FILES})
    markup = sum(file.file_size for file in files if file.filename.endswith(_MARKUP))
    unpacked = sum(file.file_size for file in files)
    for size, limit in ((markup, _MAX_MARKUP), (unpacked, _MAX_UNPACKED)):
        if size > limit:
            message = f"The file unpacks to {size} bytes; the limit is {limit}."
            raise TooLarge(message, reason="bytes", details={"max_unpacked_bytes": limit})
    return archive
