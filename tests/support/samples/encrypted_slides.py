"""An encrypted presentation of PowerPoint 97 to 2007, as [MS-PPT] describes: records, pictures, and no slides."""

import struct
from hashlib import sha1
from io import BytesIO

from msoffcrypto.method.rc4_cryptoapi import DocumentRC4CryptoAPI

from tests.support.samples.compound_files import compound_file

PASSWORD = "secret"
RECORDS = (struct.pack("<HHI", 15, 1000, 12) + b"first record", struct.pack("<HHI", 0, 4000, 6) + b"second")
# The parts of pictures that are encrypted by themselves: the header of the record, hashes, another header, and data.
_HASH = bytes(range(16))
PICTURES = (
    (struct.pack("<HHI", 0x6E00, 0xF01E, 22), _HASH, b"\xff", b"a PNG"),
    (struct.pack("<HHI", 0x6E10, 0xF01E, 44), _HASH, _HASH[::-1], b"\xff", b"another PNG"),
    (struct.pack("<HHI", 0x3D40, 0xF01A, 60), _HASH, bytes(34), b"a metafile"),
)
_SALT = bytes(range(16))
_BITS = 128
_SESSION = 3  # the number of the record with the encryption


def _encrypted(data: bytes, number: int) -> bytes:
    """RC4 encrypts as it decrypts."""
    found: bytes = DocumentRC4CryptoAPI.decrypt(PASSWORD, _SALT, _BITS, BytesIO(data), 1 << 20, number).read()
    return found


def _session() -> bytes:
    verifier = bytes(16)
    check = _encrypted(verifier + sha1(verifier).digest(), 0)
    header = struct.pack("<8I", 4, 0, 0x6801, 0x8004, _BITS, 1, 0, 0) + "RC4\0".encode("utf-16-le")
    body = struct.pack("<HHII", 4, 2, 4, len(header)) + header + struct.pack("<I", 16) + _SALT
    body += check[:16] + struct.pack("<I", 20) + check[16:]
    return struct.pack("<HHI", 15, 0x2F14, len(body)) + body


def encrypted_slides() -> bytes:
    records = [*(_encrypted(record, number) for number, record in enumerate(RECORDS, 1)), _session()]
    offsets = [sum(map(len, records[:index])) for index in range(len(records))]
    stream = b"".join(records)
    directory = struct.pack("<HHII3I", 0, 0x1772, 16, 3 << 20 | 1, *offsets)
    edit = struct.pack("<HHIIHBB4IHHI", 0, 0xFF5, 32, 0, 0, 0, 3, 0, len(stream), 1, 4, 0, 0, _SESSION)
    user = struct.pack("<HHIII", 0, 0xFF6, 24, 20, 0xF3D1C4DF)
    user += struct.pack("<IHHBBHI", len(stream + directory), 0, 0x3F4, 3, 0, 0, 8)
    streams = {"Current User": user, "PowerPoint Document": stream + directory + edit, "EncryptedSummary": bytes(8)}
    pictures = b"".join(_encrypted(part, 0) for picture in PICTURES for part in picture)
    return compound_file({**streams, "Pictures": pictures})
