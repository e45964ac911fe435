"""JPEG files as segments: their coding, changes of metadata that keep the pixels, and images after the first one.

These are gain maps, and others of multi-picture files (CIPA DC-007).
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import TypeAlias

from PIL import Image

from engine import FidelityWarning, TooLarge, warn_gain_map_lost
from engine.option_types import Metadata
from plugins._color import profiles
from plugins._metadata import exif_data, iptc_data
from plugins._metadata.writing import filter_exif, filter_iptc, filter_xmp
from plugins._pixels import pillow
from plugins._tiff import tiff_directories

MAX_BODY = 65_533  # bytes; what any segment can hold
_SCAN = b"\xff\xda"
_EOI = b"\xff\xd9"
_PADDING = b"\x5a" * 64  # entropy-coded data that change any block
_BLOCK_COEFFICIENTS = 64
_LOW_BITS = 0x0F  # in the last byte of the header of a scan: those that later scans refine
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # not stuffing, a restart or another one without a length
# Markers; END has no length either.
END = 0xD9
APP13 = 0xED
COMMENT = 0xFE
XMP = b"http://ns.adobe.com/xap/1.0/\0"
PHOTOSHOP = b"Photoshop 3.0\0"
_MAX_SCAN_HEADER = 100  # bytes, of which a header of a scan has at most 16
JFIF = 0xE0
APP1 = 0xE1  # EXIF or XMP
APP2 = 0xE2
_PROFILE = b"ICC_PROFILE\0"
_BANDS = 5  # offset of the number of bands in the start of a frame
ADOBE = 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame, by coding process
_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended and progressive, which all readers decode
_MAX_SCANS = 100  # encoders write about ten; each is a pass over all pixels


def check_scans(data: bytes) -> None:
    """Raises TooLarge for a progressive JPEG with too many scans, which would take minutes to decode."""
    scans = data.count(_SCAN)  # cannot occur in entropy-coded data, but in a video after the image
    scans = sum(code == _SCAN[1] for code, _, _ in read_segments(data)) if scans > _MAX_SCANS else scans
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
        code = data[marker.end() - 1]
        end = marker.end()
        if code != END:
            end += int.from_bytes(data[end : end + 2], "big")
        yield code, marker.start(), end
        if code == END:
            return


def open_file(data: bytes) -> tuple[bytes, Image.Image]:
    """The file, with an end and without damaged segments of applications, and its image.

    The image has the profile of colors that only EXIF describes. Issues a FidelityWarning for segments, and for a
    missing end, which only a complete image is given.
    """
    data = _with_end(data)
    try:
        image = pillow.open_image(data, "JPEG")
    except pillow.DAMAGES:
        data = _without_damaged_segments(data)
        image = pillow.open_image(data, "JPEG")
    if exif_data.OPTION_FILE in image.info.get("exif", b"") and (profile := described_profile(data)):
        image.info["icc_profile"] = profile
    return data, image


def described_profile(data: bytes) -> bytes | None:
    """The profile of a file whose EXIF, instead of a profile, states that its colors are Adobe RGB. None for others."""
    header = [(code, data[start + 4 : end]) for code, start, end in _header_segments(data, read_segments)]
    exif = next((body for code, body in header if code == APP1 and body.startswith(exif_data.PREFIX)), None)
    bands = next((body[_BANDS] for code, body in header if code in _FRAMES and len(body) > _BANDS), 0)
    has_own = any(body.startswith(_PROFILE) for _, body in header)
    return profiles.named("adobe-rgb").data if bands == 3 and not has_own and exif_data.is_adobe_rgb(exif) else None


def _with_end(data: bytes) -> bytes:
    """The file up to the end of its image, if only the marker of the end is missing. Cameras write a video there."""
    end = None if data.endswith(_EOI) else _find_missing_end(data)
    if end is None:
        return data
    scans = data[:end].rstrip(b"\xff")
    checksum, padded = (_checksum(scans + padding + _EOI) for padding in (b"", _PADDING))
    if checksum is None or checksum != padded:  # the decoder needs more than there is
        return data
    FidelityWarning.issue("repaired", "The end of the JPEG is missing. What follows the image was left out.")
    return scans + _EOI


def _find_missing_end(data: bytes) -> int | None:
    """The offset after the scans. None if they do not have all coefficients, or if the marker of the end follows."""
    missing: set[tuple[int, int]] | None = None
    for code, start, end in read_segments(data):
        if missing is not None and not missing:
            return None if code == END else start
        if code in _FRAMES:
            missing = {
                (component, index) for component in data[start + 10 : end : 3] for index in range(_BLOCK_COEFFICIENTS)
            }
        elif code == _SCAN[1] and missing and not data[end - 1] & _LOW_BITS:
            first, last = data[end - 3 : end - 1]
            missing -= {(one, index) for one in data[start + 5 : end - 3 : 2] for index in range(first, last + 1)}
    return None if missing is None or missing else len(data)


def _checksum(data: bytes) -> int | None:
    """A checksum of the pixels of an image. None if it cannot be decoded."""
    try:
        return zlib.crc32(pillow.open_image(data, "JPEG").tobytes())
    except pillow.DAMAGES:
        return None


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


def filter_segments(
    data: bytes, metadata: Metadata, *, gain_map: bool = True, dpi: int | None = None, orientation: int | None = None
) -> bytes:
    """The file with filtered metadata and unchanged pixels; `all` returns `data`. `dpi` is another resolution.

    Keeps the profile, and adds one that only EXIF describes. Removes comments, data of applications, previews, and
    everything after the image. Warns of images there, and of a `gain_map`. `orientation` (1 to 8) is the one that EXIF
    then has.
    """
    if metadata != "all":
        warn_of_lost(data, find_others(data, read_segments), gain_map=gain_map)
        profile = described_profile(data)
        added = segment(APP2, _PROFILE + b"\1\1" + profile) if profile else b""
        data = map_segments(data, partial(_filter_body, metadata=metadata), added)
    data = data if orientation is None else _with_orientation(data, orientation)
    return data if dpi is None else _with_resolution(data, dpi)


def _with_orientation(data: bytes, orientation: int) -> bytes:
    """The file whose EXIF has this orientation."""
    exif = next((body for body in _header(data, read_segments) if body.startswith(exif_data.PREFIX)), None)
    if exif_data.orientation_of(exif) == orientation:
        return data
    added = segment(APP1, exif_data.with_orientation(exif, orientation))
    return map_segments(data, lambda _, body: None if body == exif else body, added)


def _with_resolution(data: bytes, dpi: int) -> bytes:
    """The file with another resolution in JFIF and EXIF; with EXIF if it has none of them."""

    def change(code: int, body: bytes) -> bytes | None:
        if code == JFIF and body.startswith(b"JFIF\0"):
            return body[:7] + struct.pack(">BHH", 1, dpi, dpi) + body[12:]
        return exif_data.with_resolution(body, dpi) if code == APP1 and body.startswith(exif_data.PREFIX) else body

    bodies = [(code, data[start + 4 : start + 10]) for code, start, _ in read_segments(data)]
    has_place = any(code == JFIF or body.startswith(exif_data.PREFIX) for code, body in bodies)
    return map_segments(data, change, b"" if has_place else segment(APP1, exif_data.with_resolution(None, dpi) or b""))


def map_segments(data: bytes, change: Callable[[int, bytes], bytes | None], added: bytes = b"") -> bytes:
    """The file with other bodies of the segments of metadata, None for none, and the segments `added` before them."""
    parts = [data[:2], added]
    position = 2
    for code, start, end in read_segments(data):
        parts.append(data[position:start])  # entropy-coded data
        if code == END:
            break
        position = end
        segment = data[start:end]
        if is_metadata(code):
            body = change(code, segment[4:])
            segment = b"" if body is None else segment[:2] + (len(body) + 2).to_bytes(2, "big") + body
        parts.append(segment)
    else:
        parts.append(data[position:])
    return b"".join(parts) + _EOI


def is_metadata(code: int) -> bool:
    """Whether a segment is a comment or of an application."""
    return code == COMMENT or 0xE0 <= code <= 0xEF


def _filter_body(code: int, body: bytes, metadata: Metadata) -> bytes | None:
    """The remaining body of a comment or of an application's segment. None if nothing remains."""
    kept: bytes | None = None
    if code == JFIF and body.startswith(b"JFIF\0"):
        kept = body[:12] + b"\0\0"  # without a preview
    elif code == APP1 and body.startswith(exif_data.PREFIX):
        kept = filter_exif(body, metadata)
    elif code == APP1 and body.startswith(XMP):
        packet = filter_xmp(body.removeprefix(XMP), metadata)
        kept = XMP + packet if packet else None
    elif code == APP13 and body.startswith(PHOTOSHOP):
        iptc = filter_iptc(iptc_data.from_resources(body.removeprefix(PHOTOSHOP)), metadata)
        kept = PHOTOSHOP + iptc_data.to_resources(iptc) if iptc else None
    elif (code == APP2 and body.startswith(_PROFILE)) or (code == ADOBE and body.startswith(b"Adobe")):
        kept = body
    return kept if kept is None or len(kept) <= MAX_BODY else None


def segment(code: int, body: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(body) + 2).to_bytes(2, "big") + body


Segments: TypeAlias = Iterator[tuple[int, int, int]]
"""The marker, start and end of each segment."""

Images: TypeAlias = list[tuple[int, list[bytes]]]
"""The position of each image, and the bodies of its segments before the scan."""

_START = b"\xff\xd8"
_VIDEO = re.compile(rb"\0\0\0[\x10-\xff]ftyp")  # the first box of a clip
_AFTER_HEADER = (0xD9, 0xDA)  # markers: the end of the image, a scan
_INDEX = b"MPF\0"
# Entries of an index that are read, bytes of each image.
_MAX_IMAGES = 16
_MAX_HEADER = 1 << 18
_ENTRIES = 0xB002
_ENTRY_SIZE = 16
_KIND = 0xFFFFFF  # kinds of images in their attributes
_PREVIEWS = (0x010001, 0x010002)  # previews of VGA and Full HD
# Names of gain maps: of Adobe and Google, of Apple, and of ISO 21496-1.
_GAIN_MAP = (
    b"http://ns.adobe.com/hdr-gain-map/1.0/",
    b"urn:com:apple:photo:2020:aux:hdrgainmap",
    b"urn:iso:std:iso:ts:21496:-1\0",
)
_AUXILIARY = b"AuxiliaryImageType"  # Apple writes it in the XMP of depth maps and mattes.


def warn_of_lost(data: bytes, others: Images, *, gain_map: bool = True) -> None:
    """Warns that another image after the first one is lost, or a `gain_map`, or a video."""
    if not data.endswith(_EOI) and _VIDEO.search(data):
        pillow.warn_of_video()
    images = [header for _, header in others if not _mentions(header, *_GAIN_MAP)]
    if gain_map and len(images) < len(others):
        warn_gain_map_lost()
    count = sum(not _mentions(image, _AUXILIARY) for image in images)
    if count:
        FidelityWarning.issue("pictures_dropped", f"Only the first of {count + 1} images in the file was converted.")


def find_gain_map(others: Images) -> tuple[int, list[bytes]] | None:
    """The gain map among the images, if there is one."""
    return next((other for other in others if _mentions(other[1], *_GAIN_MAP)), None)


def find_others(data: bytes, read_segments: Callable[[bytes], Segments]) -> Images:
    """The images after the first one that are no previews."""
    header = _header(data, read_segments)
    index = next((body.removeprefix(_INDEX) for body in header if body.startswith(_INDEX)), b"")
    positions = _positions(data, data.find(index), index)
    others = [(start, _header(data[start : start + _MAX_HEADER], read_segments)) for start in positions]
    if not others and _mentions(header, *_GAIN_MAP):
        *_, (_, _, end) = read_segments(data)
        if data.startswith(_START, end):
            return [(end, _header(data[end : end + _MAX_HEADER], read_segments))]
    return others


def _header(data: bytes, read_segments: Callable[[bytes], Segments]) -> list[bytes]:
    """The bodies of the segments before the first scan."""
    return [data[start + 4 : end] for _, start, end in _header_segments(data, read_segments)]


def _header_segments(data: bytes, read_segments: Callable[[bytes], Segments]) -> Segments:
    return takewhile(lambda segment: segment[0] not in _AFTER_HEADER, read_segments(data))


def _mentions(header: list[bytes], *names: bytes) -> bool:
    return any(name in body for body in header for name in names)


def _positions(data: bytes, base: int, index: bytes) -> Iterator[int]:
    """Where the images after the first one start that are no previews. Offsets in the index count from `base`."""
    directories = tiff_directories.read_directories(index, _MAX_IMAGES * _ENTRY_SIZE)
    entries = directories[0].get(_ENTRIES, b"") if directories else b""
    order = ">" if index.startswith(b"MM") else "<"
    for position in range(_ENTRY_SIZE, len(entries) - _ENTRY_SIZE + 1, _ENTRY_SIZE):
        kind, _, offset = struct.unpack_from(f"{order}3I", bytes(entries), position)
        if kind & _KIND not in _PREVIEWS and data.startswith(_START, base + offset):
            yield base + offset
