"""Compresses the streams of a PDF again by Flate, without loss."""

from __future__ import annotations

import re
import zlib
from typing import Any

import imagecodecs
from pikepdf import Name, PdfError, Stream

from plugins._pdf.name_trees import as_list
from plugins._pdf.objects import stored_length

_MAX_BYTES = 64 << 20  # larger decompressed streams stay as they are
_BEST = 12  # levels of libdeflate
_FAST = 8  # the best one takes ten times as long
_MAX_BEST = 4 << 20  # bytes that are compressed at the best level
# Filters without parameters that matter, all of which Flate replaces. Their data is at most this many times as large.
_OLD_FILTERS = {"/ASCIIHexDecode", "/ASCII85Decode", "/LZWDecode", "/RunLengthDecode", "/FlateDecode"}
_MAX_GROWTH = 128
_PDF_A1 = re.compile(rb"pdfaid:part\W{1,3}1")  # PDF/A-1 allows no filters of metadata
# Between elements; not what may be the whole text of one.
_XMP_SPACE = re.compile(rb"(</[^<>]*>|<[^<>]*/>|\?>)\s+(?=<)|(?<=>)\s+(?=<[^/])")


def compress(data: bytes) -> bytes:
    """The data in the format of zlib."""
    level = _BEST if len(data) <= _MAX_BEST else _FAST
    return bytes(imagecodecs.deflate_encode(data, level))


def recompress(stream: Stream) -> None:
    """Compresses a stream again if that makes it smaller. Predictors stay, and damaged streams."""
    if stored_length(stream) > _MAX_BYTES:
        return
    filters = [str(name) for name in as_list(stream.get("/Filter"))]
    raw = stream.read_raw_bytes()
    if stream.get("/Type") == Name.Metadata and not filters:
        packet = _XMP_SPACE.sub(rb"\1", raw)
        if _PDF_A1.search(packet):
            stream.write(packet)
        else:
            _replace(stream, raw, packet, None)
    elif filters in ([], ["/FlateDecode"]):
        _replace(stream, raw, decompress(raw) if filters else raw, stream.get("/DecodeParms"))
    elif _OLD_FILTERS.issuperset(filters) and len(raw) * _MAX_GROWTH <= _MAX_BYTES:
        try:
            _replace(stream, raw, stream.read_bytes(), None)
        except PdfError:  # damaged
            return


def decompress(raw: bytes) -> bytes | None:
    """Decompresses data in the format of zlib. None if it is damaged or too large."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(raw, _MAX_BYTES)
    except zlib.error:
        return None
    return data if inflater.eof else None


def _replace(stream: Stream, raw: bytes, data: bytes | None, parameters: Any) -> None:
    if data and len(data) <= _MAX_BYTES and len(compressed := compress(data)) < len(raw):
        stream.write(compressed, filter=Name.FlateDecode, decode_parms=parameters)
