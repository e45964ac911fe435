"""Compound files, such as Word, Excel, PowerPoint and Outlook write: storages and streams in sectors."""

import struct
from collections.abc import Mapping
from typing import TypeAlias

from msoffcrypto.method.xor_obfuscation import DocumentXOR

_SECTOR = 512
_PART = 64  # of a short stream
_LONG = 4096  # bytes of a stream that has sectors of its own
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_FREE = 0xFFFFFFFF
_END = 0xFFFFFFFE
_TABLE = 0xFFFFFFFD
_PASSWORD, _SHEET, _START, _INTERFACE = 0x2F, 0x85, 0x809, 0xE1  # records of Excel
_PLAIN_RECORDS = (_START, _INTERFACE)
Storage: TypeAlias = Mapping[str, "bytes | Storage"]
"""Streams and storages by their names."""


def compound_file(root: Storage, *, loops: bool = False) -> bytes:
    """A compound file of at most 64 KiB with these storages and streams. With `loops`, the directory follows itself."""
    entries: list[tuple[str, int, int, int, bytes]] = []  # name, kind, next one, first within, content
    short = bytearray()
    parts: list[int] = []  # the next part of 64 bytes

    def add(name: str, item: bytes | Storage, kind: int, right: int = _FREE) -> int:
        index = len(entries)
        entries.append((name, kind, right, _FREE, b""))
        child = _FREE
        for inner, value in {} if isinstance(item, bytes) else item.items():
            child = add(inner, value, _STREAM if isinstance(value, bytes) else _STORAGE, child)
        entries[index] = (name, kind, right, child, item if isinstance(item, bytes) else b"")
        return index

    def place(content: bytes) -> int:
        """Where the content of an entry begins."""
        if len(content) >= _LONG or not content:
            return allocate(content)
        first = len(parts)
        parts.extend([*range(first + 1, first + -(-len(content) // _PART)), _END])
        short.extend(_filled(content, _PART))
        return first

    chain = [_TABLE]
    sectors = bytearray()

    def allocate(content: bytes) -> int:
        count = -(-len(content) // _SECTOR)
        first = len(chain)
        chain.extend([*range(first + 1, first + count), *[_END] * (count > 0)])
        sectors.extend(_filled(content, _SECTOR))
        return first if count else _END

    add("Root Entry", root, _ROOT)
    directory = allocate(bytes(128 * len(entries)))
    if loops:
        chain[directory] = directory
    starts = [0, *(place(content) for *_, content in entries[1:])]
    starts[0] = allocate(bytes(short))
    table_of_parts = allocate(struct.pack(f"<{len(parts)}I", *parts))
    written = b""
    for (name, kind, right, child, content), first in zip(entries, starts, strict=True):
        encoded = name.encode("utf-16-le") + b"\0\0"
        size = len(short) if kind == _ROOT else len(content)
        written += struct.pack("<64sHBBIII36xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, first, size)
    sectors[: len(written)] = written
    count = -(-4 * len(parts) // _SECTOR)
    numbers = (62, 3, 0xFFFE, 9, 6, 0, 1, directory, 0, _LONG, table_of_parts, count, _END, 0, 0)
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH6xIIIIIIIIII", *numbers)
    table = struct.pack(f"<{len(chain)}I", *chain)
    assert len(table) <= _SECTOR
    return header.ljust(_SECTOR, b"\xff") + table.ljust(_SECTOR, b"\xff") + sectors


def _filled(data: bytes, size: int) -> bytes:
    return data.ljust(-(-len(data) // size) * size, b"\0")


def obfuscated(workbook: bytes, password: str) -> bytes:
    """A stream of records of Excel, with a password that every 16 bytes are combined with."""
    array = DocumentXOR.create_xor_array_method1(password)
    verifier = 0
    for byte in reversed([len(password), *password.encode()]):
        verifier = (verifier >> 14 & 1) ^ (verifier * 2 & 0x7FFF) ^ byte
    result = b""
    offset = 0
    while offset < len(workbook):
        kind, size = struct.unpack_from("<HH", workbook, offset)
        data = workbook[offset + 4 : offset + 4 + size]
        offset += 4 + size
        result += struct.pack("<HH", kind, size)
        kept = size if kind in _PLAIN_RECORDS else 0
        if kind == _SHEET:
            kept = 4
            data = struct.pack("<I", int.from_bytes(data[:4], "little") + 10) + data[4:]
        ends = len(result) + size
        changed = ((byte << 5 | byte >> 3) & 255 for byte in data[kept:])
        result += data[:kept] + bytes(byte ^ array[(ends + place) % 16] for place, byte in enumerate(changed, kept))
        if len(result) == 4 + size:  # after the first record
            key = DocumentXOR.create_xor_key_method1(password)
            result += struct.pack("<5H", _PASSWORD, 6, 0, key, verifier ^ 0xCE4B)
    return result
