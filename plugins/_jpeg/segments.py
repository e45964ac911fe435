"""JPEG files as segments: their coding, and changes of metadata that keep the pixels."""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile

from PIL import Image

from engine import TooLarge
from engine.option_types import Metadata
from plugins._jpeg import additional_images
from plugins._metadata import exif_data, iptc_data
from plugins._metadata.filters import filter_exif, filter_iptc, filter_xmp
from plugins._pixels import pillow

_MAX_BODY = 65_533  # bytes; what any segment can hold
_SCAN = b"\xff\xda"
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # not stuffing, a restart or another one without a length
END, APP13, COMMENT = 0xD9, 0xED, 0xFE  # markers; END has no length either
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
PHOTOSHOP = b"Photoshop 3.0\0"
_MAX_SCAN_HEADER = 100  # bytes, of which a header of a scan has at most 16
JFIF, ADOBE = 0xE0, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame, by coding process
_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended and progressive, which all readers decode
_MAX_SCANS = 100  # encoders write about ten; each is a pass over all pixels


def check_scans(data: bytes) -> None:
    """Raises TooLarge for a progressive JPEG with too many scans, which would take minutes to decode."""
    scans = data.count(_SCAN)  # cannot occur in entropy-coded data
    if scans > _MAX_SCANS:
        raise TooLarge(
            f"The JPEG has {scans} scans; the limit is {_MAX_SCANS}.",
            reason="scans",
            details={"max_scans": _MAX_SCANS, "scans": scans},
        )


def inspect_coding(data: bytes) -> tuple[bool, bool]:
    """Whether a JPEG has Huffman coding and 8 bits per sample, and whether it has a scan and an end."""
    codes = [code for code, _, _ in read_segments(data)]
    return next((code for code in codes if code in _FRAMES), None) in _HUFFMAN, _SCAN[1] in codes and codes[-1] == END


def is_decodable(image: Image.Image) -> bool:
    """Whether a JPEG is neither truncated nor damaged. Leaves its image at a lower size, which takes less time."""
    image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
    try:
        image.load()
    except OSError:
        return False
    return True


def read_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker, start and end of each segment, up to the end of the image."""
    end = 2
    while (marker := _MARKER.search(data, end)) is not None:
        code, end = data[marker.end() - 1], marker.end()
        if code != END:
            end += int.from_bytes(data[end : end + 2], "big")
        yield code, marker.start(), end
        if code == END:
            return


def open_file(data: bytes) -> tuple[bytes, Image.Image]:
    """The file, without damaged segments of applications, and its image. Issues a FidelityWarning for segments."""
    try:
        return data, pillow.open_image(data, "JPEG")
    except pillow.DAMAGES:
        data = _without_damaged_segments(data)
        return data, pillow.open_image(data, "JPEG")


def _without_damaged_segments(data: bytes) -> bytes:
    """The file without the segments of applications that Pillow cannot read."""
    segments = list(takewhile(lambda segment: segment[0] != _SCAN[1], read_segments(data)))
    optional = [(start, end) for code, start, end in segments if 0xE0 <= code <= 0xEF]
    scan = data.find(_SCAN, segments[-1][2] if segments else 2)
    needed = b"".join(data[start:end] for code, start, end in segments if not 0xE0 <= code <= 0xEF)

    def header(blocks: Sequence[bytes]) -> bytes:
        return b"".join([data[:2], *blocks, needed, data[scan : scan + _MAX_SCAN_HEADER]])

    damaged = pillow.damaged_blocks("JPEG", [data[start:end] for start, end in optional], header)
    if damaged:
        pillow.warn_damaged()
    for index in reversed(damaged):
        start, end = optional[index]
        data = data[:start] + data[end:]
    return data


def filter_segments(data: bytes, metadata: Metadata, *, gain_map: bool = True, dpi: int | None = None) -> bytes:
    """The file with filtered metadata and unchanged pixels; `all` returns `data`. `dpi` is another resolution.

    Keeps the profile. Removes comments, data of applications, previews, and everything after the image. Warns of
    images there, and of a `gain_map`.
    """
    if metadata != "all":
        additional_images.warn_of_lost(additional_images.find_others(data, read_segments), gain_map=gain_map)
        data = map_segments(data, partial(_filter_body, metadata=metadata))
    return data if dpi is None else _with_resolution(data, dpi)


def _with_resolution(data: bytes, dpi: int) -> bytes:
    """The file with another resolution in JFIF and EXIF; with EXIF if it has none of them."""

    def change(code: int, body: bytes) -> bytes | None:
        if code == JFIF and body.startswith(b"JFIF\0"):
            return body[:7] + struct.pack(">BHH", 1, dpi, dpi) + body[12:]
        return exif_data.with_resolution(body, dpi) if code == 0xE1 and body.startswith(exif_data.PREFIX) else body

    bodies = [(code, data[start + 4 : start + 10]) for code, start, _ in read_segments(data)]
    has_place = any(code == JFIF or body.startswith(exif_data.PREFIX) for code, body in bodies)
    return map_segments(data, change, b"" if has_place else segment(0xE1, exif_data.with_resolution(None, dpi) or b""))


def map_segments(data: bytes, change: Callable[[int, bytes], bytes | None], added: bytes = b"") -> bytes:
    """The file with other bodies of the segments of metadata, None for none, and the segments `added` before them."""
    parts = [data[:2], added]
    position = 2
    for code, start, end in read_segments(data):
        parts.append(data[position:start])  # entropy-coded data
        if code == END:
            break
        position, segment = end, data[start:end]
        if is_metadata(code):
            body = change(code, segment[4:])
            segment = b"" if body is None else segment[:2] + (len(body) + 2).to_bytes(2, "big") + body
        parts.append(segment)
    else:
        parts.append(data[position:])
    return b"".join(parts) + b"\xff\xd9"


def is_metadata(code: int) -> bool:
    """Whether a segment is a comment or of an application."""
    return code == COMMENT or 0xE0 <= code <= 0xEF


def _filter_body(code: int, body: bytes, metadata: Metadata) -> bytes | None:
    """The remaining body of a comment or of an application's segment. None if nothing remains."""
    kept: bytes | None = None
    if code == JFIF and body.startswith(b"JFIF\0"):
        kept = body[:12] + b"\0\0"  # without a preview
    elif code == 0xE1 and body.startswith(exif_data.PREFIX):
        kept = filter_exif(body, metadata)
    elif code == 0xE1 and body.startswith(_XMP):
        packet = filter_xmp(body.removeprefix(_XMP), metadata)
        kept = _XMP + packet if packet else None
    elif code == APP13 and body.startswith(PHOTOSHOP):
        iptc = filter_iptc(iptc_data.from_resources(body.removeprefix(PHOTOSHOP)), metadata)
        kept = PHOTOSHOP + iptc_data.to_resources(iptc) if iptc else None
    elif (code == 0xE2 and body.startswith(b"ICC_PROFILE\0")) or (code == ADOBE and body.startswith(b"Adobe")):
        kept = body
    return kept if kept is None or len(kept) <= _MAX_BODY else None


def segment(code: int, body: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(body) + 2).to_bytes(2, "big") + body
