"""PDFs of which every byte is given, for files that no PDF library writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

_CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
PAGES = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
PAGE = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 300]/Resources<</Font<</F 4 0 R>>%s>>/Contents 5 0 R%s>>"
FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
TEXT = b"BT /F 12 Tf 20 100 Td (a page) Tj ET"


def pdf(
    *others: bytes,
    root: bytes = b"",
    pages: bytes = PAGES,
    page: bytes = b"",
    resources: bytes = b"",
    content: bytes = TEXT,
    trailer: bytes = b"",
    font: bytes = FONT,
    replaced_page: bytes | None = None,
) -> bytes:
    """A file with one page, objects 1 to 5, and the `others` from number 6.

    `root`, `page`, `resources` and `trailer` are added to those dictionaries.
    """
    catalog = _CATALOG[:-2] + root + b">>"
    shown = PAGE % (resources, page) if replaced_page is None else replaced_page
    return assembled([catalog, pages, shown, font, stream(content), *others], trailer)


def stream(data: bytes, entries: bytes = b"", length: bytes | None = None) -> bytes:
    """A stream object with this data as it is stored."""
    size = b"%d" % len(data) if length is None else length
    return b"<<%s/Length %s>>stream\n%s\nendstream" % (entries, size, data)


def bomb(size: int) -> bytes:
    """Zeros of so many MiB, compressed."""
    compressor = zlib.compressobj(9, wbits=-15)
    part = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">I", (size << 20) % 65521 << 16 | 1)
    return b"\x78\xda" + part * size + compressor.flush() + checksum


def assembled(objects: list[bytes], trailer: bytes = b"") -> bytes:
    """A file with these objects, numbered from 1, and a table of their offsets."""
    out = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def _stream_index(entries: list[tuple[int, int, int]], objects: bytes, extra: bytes = b"") -> bytes:
    """A file whose index is a stream with these entries: type, and two numbers. Its own offset is appended."""
    start = len(objects)
    rows = b"".join(struct.pack(">BIH", *entry) for entry in (*entries, (1, start, 0)))
    number = len(entries)
    keys = b"/Type/XRef/W[1 4 2]/Size %d/Root 1 0 R%s" % (number + 1, extra)
    return objects + b"%d 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n" % (number, stream(rows, keys), start)


def object_stream(header: bytes, entries: bytes = b"") -> bytes:
    """A file whose catalog is in an object stream, which states that it is in itself."""
    start = b"%PDF-1.7\n"
    content = stream(header + _CATALOG, b"/Type/ObjStm/N 1/First %d%s" % (len(header), entries))
    body = b"2 0 obj\n" + content + b"\nendobj\n"
    return _stream_index([(0, 0, 0), (2, 2, 0), (2, 2, 0)], start + body)


def chain(count: int, link: Callable[[int], bytes], last: bytes = b"<<>>") -> list[bytes]:
    """Objects from number 6 on, each with a link to the next one."""
    return [*(link(number) for number in range(7, 6 + count)), last]
