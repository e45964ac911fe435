"""Mails: as they are sent (EML), and as Outlook stores them (MSG)."""

import struct
from collections.abc import Mapping
from email.message import EmailMessage
from io import BytesIO
from typing import TypeAlias

from PIL import Image

_SECTOR = 512
_PART = 64  # of a short stream
_ROOT = 5
_FREE = 0xFFFFFFFF
_END = 0xFFFFFFFE
_TABLE = 0xFFFFFFFD
Storage: TypeAlias = Mapping[str, "bytes | Storage"]
"""Streams and storages by their names."""


def picture() -> bytes:
    """A red PNG of 10 x 10 pixels."""
    file = BytesIO()
    Image.new("RGB", (10, 10), "red").save(file, "PNG")
    return file.getvalue()


def mail(text: str = "Dear Bob", html: str = "", *, subject: str = "Offer") -> EmailMessage:
    """A mail of Anna to Bob, with HTML beside its text if there is some."""
    made = EmailMessage()
    fields = {
        "From": "Anna Müller <anna@example.org>",
        "To": "bob@example.org",
        "Date": "Sun, 29 Nov 2026 06:00:00 +0100",
    }
    for name, value in ({"Subject": subject} | fields).items():
        made[name] = value
    made.set_content(text)
    if html:
        made.add_alternative(html, subtype="html")
    return made


def outlook(*, body: str = "Dear Bob", html: bytes = b"", rtf: bytes = b"") -> bytes:
    """A mail of Anna to Bob with the picture `logo`, and a file in a code page, which are attached."""
    sent = struct.pack("<HHIQ", 0x40, 0x39, 0, 134_398_188_000_000_000)
    page = struct.pack("<HHIQ", 3, 0x3FDE, 0, 1252)
    to = struct.pack("<HHIQ", 3, 0x0C15, 0, 1)
    texts = {0x0037: "Offer", 0x0C1A: "Anna Müller", 0x0C1F: "anna@example.org", 0x1000: body}
    return compound_file(
        {
            "__properties_version1.0": bytes(32) + sent + page,
            "__nameid_version1.0": {},
            **{f"__substg1.0_{number:04X}001F": text.encode("utf-16-le") for number, text in texts.items() if text},
            **{f"__substg1.0_{number}0102": data for number, data in (("1013", html), ("1009", rtf)) if data},
            "__recip_version1.0_#00000000": {
                "__properties_version1.0": bytes(8) + to,
                "__substg1.0_3001001F": "Bob".encode("utf-16-le"),
                "__substg1.0_39FE001F": "bob@example.org".encode("utf-16-le"),
            },
            "__attach_version1.0_#00000000": {
                "__substg1.0_37010102": picture(),
                "__substg1.0_3707001F": "logo.png".encode("utf-16-le"),
                "__substg1.0_370E001F": "image/png".encode("utf-16-le"),
                "__substg1.0_3712001F": "logo".encode("utf-16-le"),
            },
            "__attach_version1.0_#00000001": {
                "__substg1.0_37010102": b"123",
                "__substg1.0_3704001E": "Größe.bin".encode("cp1252"),
            },
        }
    )


def compound_file(root: Storage) -> bytes:
    """A compound file with these storages and streams, which are shorter than 4096 bytes."""
    entries: list[bytes] = []
    content = bytearray()
    small: list[int] = []  # the next part of 64 bytes

    def add(name: str, item: bytes | Storage, kind: int, right: int = _FREE) -> int:
        index = len(entries)
        entries.append(b"")
        child = _FREE
        first = _END
        size = 0
        if isinstance(item, bytes):
            first, size = len(small), len(item)
            small.extend([*range(first + 1, first + -(-size // _PART)), _END])
            content.extend(_filled(item, _PART))
        else:
            for inner, value in item.items():
                child = add(inner, value, 2 if isinstance(value, bytes) else 1, child)
        if kind == _ROOT:
            first, size = 0, len(content)
        encoded = name.encode("utf-16-le") + b"\0\0"
        entries[index] = struct.pack(
            "<64sHBBIII36xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, first, size
        )
        return index

    add("Root Entry", root, _ROOT)
    streams = [bytes(content), struct.pack(f"<{len(small)}I", *small), b"".join(entries)]
    starts: list[int] = []
    chain: list[int] = []
    for stream in streams:
        starts.append(len(chain))
        chain += [*range(len(chain) + 1, len(chain) + -(-len(stream) // _SECTOR)), _END]
    table = struct.pack(f"<{len(chain) + 1}I", *chain, _TABLE).ljust(_SECTOR, b"\xff")
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    _, parts, directory = starts
    header += struct.pack(
        "<HHHHH6xIIIIIIIIII",
        62,
        3,
        0xFFFE,
        9,
        6,
        0,
        1,
        directory,
        0,
        4096,
        parts,
        directory - parts,
        _END,
        0,
        len(chain),
    )
    return header.ljust(_SECTOR, b"\xff") + b"".join(_filled(stream, _SECTOR) for stream in streams) + table


def _filled(data: bytes, size: int) -> bytes:
    return data.ljust(-(-len(data) // size) * size, b"\0")
