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

_USER, _SLIDES, _PICTURES = "Current User", "PowerPoint Document", "Pictures"
# Bytes of the stream of the user, and their value without encryption.
_MARK = slice(12, 16)
_PLAIN = b"\x5f\xc0\x91\xe3"
_EDIT = 16  # place of the offset of the latest edit in the stream of the user
_DIRECTORY, _SESSION = 20, 36  # places in an edit: the offset of its directory, and the number of the encryption
_HEADER = 8  # bytes of a record: version and instance, kind, and length of the rest
_WHOLE = 1 << 30  # bytes of a block, which is a record or a part of a picture
_METAFILES = (0xF01A, 0xF01B, 0xF01C)
_TWO_HASHES = frozenset({0x217, 0x3D5, 0x46B, 0x543, 0x6E1, 0x6E3, 0x6E5, 0x7A9})  # instances of pictures
_HASH, _METAFILE, _TAG = 16, 34, 1  # bytes of parts of pictures
# LibreOffice refuses slides beside a summary of this name. It stays encrypted.
_SUMMARY, _OTHER = (f"{word}cryptedSummary".encode("utf-16-le").ljust(64, b"\0") for word in ("En", "De"))
_Decrypt: TypeAlias = Callable[[bytes, int], bytes]


def decrypt(data: bytes, password: str) -> bytes:
    """The file without encryption. Raises errors of any type for another password, or for a damaged file."""
    encryption: Any = msoffcrypto.OfficeFile(BytesIO(data))
    encryption.load_key(password=password)
    file = BytesIO(data)
    with olefile.OleFileIO(file, write_mode=True) as streams:
        user, slides = (bytearray(streams.openstream(name).read()) for name in (_USER, _SLIDES))
        read = partial(_decrypted, encryption)
        _decrypt_records(slides, _number(user, _EDIT), read)
        user[_MARK] = _PLAIN
        streams.write_stream(_USER, bytes(user))
        streams.write_stream(_SLIDES, bytes(slides))
        if streams.exists(_PICTURES):
            pictures = bytearray(streams.openstream(_PICTURES).read())
            _decrypt_pictures(pictures, read)
            streams.write_stream(_PICTURES, bytes(pictures))
    return file.getvalue().replace(_SUMMARY, _OTHER)


def _decrypted(encryption: Any, data: bytes, block: int) -> bytes:
    rest = BytesIO(data)
    found: bytes = DocumentRC4CryptoAPI.decrypt(
        encryption.key,
        encryption.salt,
        encryption.keySize,
        rest,
        blocksize=_WHOLE,
        block=block,
    ).read()
    return found


def _decrypt_records(slides: bytearray, edit: int, read: _Decrypt) -> None:
    """Decrypts the records that the directory of an edit lists, each by its number."""
    session = _number(slides, edit + _SESSION)
    for number, start in _directory(slides, _number(slides, edit + _DIRECTORY)):
        if number != session:
            length = _HEADER + _number(read(bytes(slides[start : start + _HEADER]), number), 4)
            slides[start : start + length] = read(bytes(slides[start : start + length]), number)


def _directory(slides: bytearray, start: int) -> Iterator[tuple[int, int]]:
    """The numbers and offsets of the records that a directory lists in runs of following numbers."""
    place = start + _HEADER
    end = place + _number(slides, start + 4)
    while place < end:
        run = _number(slides, place)
        first, count = run & 0xFFFFF, run >> 20
        yield from enumerate(struct.unpack_from(f"<{count}I", slides, place + 4), first)
        place += 4 + 4 * count


def _decrypt_pictures(pictures: bytearray, read: _Decrypt) -> None:
    """Decrypts each picture. The cipher starts again for its record header, each hash, its own header and its data."""
    place = 0

    def decrypt_next(length: int) -> None:
        nonlocal place
        pictures[place : place + length] = read(bytes(pictures[place : place + length]), 0)
        place += length

    while place + _HEADER <= len(pictures):
        start = place
        decrypt_next(_HEADER)
        instance, kind, length = struct.unpack_from("<HHI", pictures, start)
        for _ in range(1 + (instance >> 4 in _TWO_HASHES)):
            decrypt_next(_HASH)
        decrypt_next(_METAFILE if kind in _METAFILES else _TAG)
        decrypt_next(start + _HEADER + length - place)


def _number(data: bytes | bytearray, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "little")
