"""Decrypts presentations of PowerPoint 97 to 2007, as [MS-PPT] and [MS-OFFCRYPTO] describe: by RC4 of the CryptoAPI."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, TypeAlias

import msoffcrypto
import olefile
from msoffcrypto.method.rc4_cryptoapi import DocumentRC4CryptoAPI

CURRENT_USER = "Current User"
"""The stream that says whether a presentation is encrypted."""
_DOCUMENT, _PICTURES = "PowerPoint Document", "Pictures"
# The bytes of CURRENT_USER that say so, and their values.
_TOKEN = slice(12, 16)
_ENCRYPTED, _PLAIN = b"\xdf\xc4\xd1\xf3", b"\x5f\xc0\x91\xe3"
# Where offsets and numbers are: of the latest edit in CURRENT_USER; in an edit, of the directory of its records, and of
# the record that describes the encryption.
_LATEST_EDIT = 16
_DIRECTORY, _ENCRYPTION = 20, 36
_HEADER = 8  # bytes of a record before its content: version with instance, kind, and length of the content
_BLOCK = 1 << 30  # bytes after which the library would change the key; each record has one key
# Kinds of records with a metafile, and instances of records with a picture that has two hashes.
_METAFILES = frozenset({0xF01A, 0xF01B, 0xF01C})
_TWO_HASHES = frozenset({0x217, 0x3D5, 0x46B, 0x543, 0x6E1, 0x6E3, 0x6E5, 0x7A9})
# Bytes of a hash, of the header of a metafile, and of what other pictures have instead of it.
_HASH, _METAFILE_HEADER, _TAG = 16, 34, 1
# LibreOffice refuses presentations with a stream of the first name, which stays encrypted. It ignores the other one.
_SUMMARY, _IGNORED = (f"{start}cryptedSummary".encode("utf-16-le").ljust(64, b"\0") for start in ("En", "De"))
_Cipher: TypeAlias = Callable[[bytearray, int], bytes]
"""Decrypts bytes with the key of the record of a number."""


def is_encrypted(file: Any) -> bool:
    """Whether a presentation, opened by olefile, is encrypted."""
    return bool(file.openstream(CURRENT_USER).read()[_TOKEN] == _ENCRYPTED)


def decrypt(data: bytes, password: str) -> bytes:
    """The file without encryption. Raises errors of any type for another password, or for a damaged file."""
    encryption: Any = msoffcrypto.OfficeFile(BytesIO(data))
    encryption.load_key(password=password)
    cipher = partial(_decrypted, encryption)
    file = BytesIO(data)
    with olefile.OleFileIO(file, write_mode=True) as streams:
        user, document = (bytearray(streams.openstream(name).read()) for name in (CURRENT_USER, _DOCUMENT))
        _decrypt_records(document, _number(user, _LATEST_EDIT), cipher)
        user[_TOKEN] = _PLAIN
        streams.write_stream(CURRENT_USER, bytes(user))
        streams.write_stream(_DOCUMENT, bytes(document))
        if streams.exists(_PICTURES):
            pictures = bytearray(streams.openstream(_PICTURES).read())
            _decrypt_pictures(pictures, cipher)
            streams.write_stream(_PICTURES, bytes(pictures))
    return file.getvalue().replace(_SUMMARY, _IGNORED)


def _decrypted(encryption: Any, data: bytearray, number: int) -> bytes:
    key = encryption.key, encryption.salt, encryption.keySize
    found: bytes = DocumentRC4CryptoAPI.decrypt(*key, BytesIO(data), _BLOCK, number).read()
    return found


def _decrypt_records(document: bytearray, edit: int, cipher: _Cipher) -> None:
    """Decrypts the records that the directory of the edit at an offset lists, each with the key of its number."""
    plain = _number(document, edit + _ENCRYPTION)
    for number, start in _directory(document, _number(document, edit + _DIRECTORY)):
        if number != plain:
            length = _HEADER + _number(cipher(document[start : start + _HEADER], number), 4)
            document[start : start + length] = cipher(document[start : start + length], number)


def _directory(document: bytearray, start: int) -> Iterator[tuple[int, int]]:
    """The numbers and offsets of the records that a directory lists: offsets of consecutive numbers after the first."""
    place = start + _HEADER
    end = place + _number(document, start + 4)
    while place < end:
        run = _number(document, place)
        first, count = run & 0xFFFFF, run >> 20
        yield from enumerate(struct.unpack_from(f"<{count}I", document, place + 4), first)
        place += 4 + 4 * count


def _decrypt_pictures(pictures: bytearray, cipher: _Cipher) -> None:
    """Decrypts each picture. The cipher starts again for its record header, each hash, its own header and its data."""
    place = 0

    def decrypt_next(length: int) -> None:
        nonlocal place
        pictures[place : place + length] = cipher(pictures[place : place + length], 0)
        place += length

    while place + _HEADER <= len(pictures):
        start = place
        decrypt_next(_HEADER)
        instance, kind, length = struct.unpack_from("<HHI", pictures, start)
        for _ in range(1 + (instance >> 4 in _TWO_HASHES)):
            decrypt_next(_HASH)
        decrypt_next(_METAFILE_HEADER if kind in _METAFILES else _TAG)
        decrypt_next(start + _HEADER + length - place)


def _number(data: bytes | bytearray, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "little")
