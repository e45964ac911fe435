"""SVG: reading, CSS, effects, and rendering."""

import zlib

GZIP = b"\x1f\x8b"


def decompress(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a file, which may be gzipped."""
    if data[:2] != GZIP:
        return data
    return zlib.decompressobj(wbits=31).decompress(data, limit)
