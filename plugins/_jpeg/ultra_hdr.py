"""JPEG files with a gain map: the second image of a multi-picture file (CIPA DC-007), described in both images."""

import re
import struct
from collections.abc import Callable

from PIL import Image

from engine import GainMap, Size, lazy_imports, warn_gain_map_lost
from plugins._color import gain_maps
from plugins._jpeg import segments
from plugins._jpeg.segments import APP1, APP2, JFIF, MAX_BODY, XMP, Images, Segments
from plugins._pixels import pillow

with lazy_imports():
    import numpy as np

_ISO = b"urn:iso:std:iso:ts:21496:-1\0"
_VERSION = bytes(4)  # ISO 21496-1: the first image has the version, the second one the numbers
_FIRST = (JFIF, APP1)  # markers; JFIF, EXIF and XMP come first
_QUALITY = 92  # JPEG quality of the gain map
_PRIMARY = 0x030000  # kind of the first image
_ENTRY = ">IIIHH"
_INDEX_HEADER = 4  # bytes of a segment before its body, and of the body before its directory
_DIRECTORY = re.compile(rb"<Container:Directory>.*?(?:</Container:Directory>|\Z)", re.S)
_END = b"</rdf:RDF>"
_EMPTY = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b"</rdf:RDF></x:xmpmeta>"
)
_DESCRIPTION = (
    '<rdf:Description rdf:about="" xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"'
    ' xmlns:Container="http://ns.google.com/photos/1.0/container/"'
    ' xmlns:Item="http://ns.google.com/photos/1.0/container/item/"><Container:Directory><rdf:Seq>'
    '<rdf:li rdf:parseType="Resource"><Container:Item Item:Semantic="Primary" Item:Mime="image/jpeg"/></rdf:li>'
    '<rdf:li rdf:parseType="Resource"><Container:Item Item:Semantic="GainMap" Item:Mime="image/jpeg"'
    ' Item:Length="{}"/></rdf:li></rdf:Seq></Container:Directory></rdf:Description>'
)


def read(data: bytes, others: Images, size: Size, orientation: int) -> GainMap | None:
    """The gain map among the other images of a file whose upright image has this size. None without.

    Issues a FidelityWarning for one that cannot be read, and for additional images.
    """
    found = segments.find_gain_map(others)
    if found is None:
        return None
    position, header = found
    try:
        image = pillow.open_image(data[position:], "JPEG")
        profile = image.info.get("icc_profile")
        upright = Image.fromarray(pillow.apply_orientation(np.asarray(image), orientation))
    except pillow.DAMAGES:
        warn_gain_map_lost()
        return None
    packet = next((body.removeprefix(XMP) for body in header if body.startswith(XMP)), b"")
    numbers = next((body.removeprefix(_ISO) for body in header if body.startswith(_ISO)), b"")
    described = gain_maps.from_xmp(packet) or gain_maps.from_iso(numbers)
    gain_map = gain_maps.made(upright, described, size, profile) or gain_maps.from_apple(upright, packet, size)
    if gain_map is None:
        warn_gain_map_lost()
    return gain_map


def join(data: bytes, read_segments: Callable[[bytes], Segments], gain_map: GainMap) -> bytes:
    """The file with the gain map as its second image."""
    second = pillow.encode_jpeg(
        gain_map.frame.image,
        quality=_QUALITY,
        subsampling="4:4:4",
        icc_profile=gain_map.frame.icc_profile,
        xmp=gain_maps.to_xmp(gain_map),
        extra=segments.segment(APP2, _ISO + gain_maps.to_iso(gain_map)),
    )
    first = _described(data, read_segments, len(second))
    position = 2
    for code, _, end in read_segments(first):
        if code not in _FIRST:
            break
        position = end
    head, tail = first[:position] + segments.segment(APP2, _ISO + _VERSION), first[position:]
    index = _index(0, 0, 0)
    size = len(head) + len(index) + len(tail)
    # Offsets count from the directory of the index.
    index = _index(size, len(second), size - len(head) - 2 * _INDEX_HEADER)
    return head + index + tail + second


def _described(data: bytes, read_segments: Callable[[bytes], Segments], length: int) -> bytes:
    """The file whose XMP announces a gain map of `length` bytes; unchanged if it has too much XMP."""
    found = [
        (start, end) for code, start, end in read_segments(data) if code == APP1 and data[start + 4 :].startswith(XMP)
    ]
    start, end = found[0] if found else (0, 0)
    packet = data[start + 4 + len(XMP) : end] if found else _EMPTY
    packet = _DIRECTORY.sub(b"", packet)
    before, separator, after = packet.rpartition(_END)
    body = XMP + before + _DESCRIPTION.format(length).encode() + separator + after
    if not separator or len(body) > MAX_BODY:
        return data
    if not found:
        # After JFIF, which comes first.
        start = end = next((end for code, _, end in read_segments(data) if code == _FIRST[0]), 2)
    return data[:start] + segments.segment(APP1, body) + data[end:]


def _index(size: int, second_size: int, offset: int) -> bytes:
    """The segment with the index of two images."""
    entries = struct.pack(_ENTRY, _PRIMARY, size, 0, 0, 0) + struct.pack(_ENTRY, 0, second_size, offset, 0, 0)
    tags = struct.pack(">HHI4s HHII HHII", 0xB000, 7, 4, b"0100", 0xB001, 4, 1, 2, 0xB002, 7, len(entries), 50)
    return segments.segment(APP2, b"MPF\0MM\0*" + struct.pack(">IH", 8, 3) + tags + bytes(4) + entries)
