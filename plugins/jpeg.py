"""JPEG (ISO/IEC 10918)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from engine import RASTER, FileFormat, Loss, Raster, Signature, TargetCapabilities, TooLarge, conversion, ends_with
from engine.option_types import Crop, Effort, Fit, Height, Metadata, Progressive, Quality, Rotate, Width
from plugins import _exif, _iptc, _jpeg_pictures, _metadata_writing, _pillow
from plugins.geometry import needed_size, reduced_scale
from plugins.metadata import filter_exif, filter_iptc, filter_xmp

JPEG = FileFormat(
    "jpeg",
    media_type="image/jpeg",
    extensions=("jpg", "jpeg", "jpe", "jfif"),
    sniff=Signature((0, b"\xff\xd8\xff")),
    lossy=True,
    is_complete=ends_with(b"\xff\xd9"),
)

Subsampling: TypeAlias = Annotated[
    Literal["4:2:0", "4:4:4"],
    Field(description="4:2:0 halves the resolution of colors; by default with a quality below 90."),
]
MODULES = ("PIL.MpoImagePlugin",)

_DEFAULT_EFFORT = 5  # more computes optimal Huffman tables
_MAX_SEGMENT = 65_500  # bytes; the limit of one APP1 segment
_SCAN = b"\xff\xda"
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # not stuffing, a restart or another one without a length
END, _APP13, _COMMENT = 0xD9, 0xED, 0xFE  # markers; END has no length either
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_PHOTOSHOP = b"Photoshop 3.0\0"
_MAX_SCAN_HEADER = 100  # bytes, of which a header of a scan has at most 16
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


@conversion(JPEG, RASTER, memory=4)
def decode(
    data: bytes,
    *,
    width: Width | None = None,
    height: Height | None = None,
    fit: Fit = "inside",
    crop: Crop | None = None,
    rotate: Rotate = 0,
) -> Raster:
    """Decodes at 1/2, 1/4 or 1/8 of the size if that is enough for the requested one."""
    check_scans(data)
    data = without_damaged_segments(data)
    _jpeg_pictures.warn_of_further(data, read_segments)
    image = _pillow.open_image(data, "JPEG")
    size = _pillow.upright_size(image)
    scale = reduced_scale(size, needed_size(size, width, height, fit=fit, crop=crop, rotate=rotate))
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))
    raster = _pillow.to_raster(image, [0], lossy=True)
    if scale == 1:
        return raster
    reduced = raster.map(lambda frame: replace(frame, full_size=size))
    return replace(reduced, sizes=[size], drawn_sizes=raster.sizes)


_HOLDS = TargetCapabilities(
    ("L", "RGB", "CMYK"),
    icc=True,
    max_side=65_500,
    metadata=frozenset({"exif", "xmp", "iptc", "text"}),
    max_metadata=_MAX_SEGMENT,
)


@conversion(RASTER, JPEG, loss=Loss.DETAIL, holds=_HOLDS)
def encode(
    raster: Raster,
    *,
    quality: Quality = 80,
    effort: Effort = 5,
    progressive: Progressive = False,
    subsampling: Subsampling | None = None,
) -> bytes:
    frame = raster.first_frame()
    return _pillow.encode_jpeg(
        frame.image,
        quality=quality,
        subsampling=subsampling or ("4:4:4" if quality >= 90 else "4:2:0"),
        optimize=effort > _DEFAULT_EFFORT,
        progressive=progressive,
        icc_profile=frame.icc_profile,
        exif=raster.exif,
        xmp=raster.xmp,
        extra=_other_segments(raster),
        dpi=raster.dpi,
    )


def _other_segments(raster: Raster) -> bytes:
    """The segments of IPTC and comments, which are cut at the limit of a segment."""
    segments = [_segment(_COMMENT, comment[:_MAX_SEGMENT]) for comment in _metadata_writing.comments(raster)]
    if raster.iptc:
        segments.append(_segment(_APP13, _PHOTOSHOP + _iptc.to_resources(raster.iptc)))
    return b"".join(segments)


def _segment(code: int, body: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(body) + 2).to_bytes(2, "big") + body


def read_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker, start and end of each segment, up to the end of the picture."""
    end = 2
    while (marker := _MARKER.search(data, end)) is not None:
        code, end = data[marker.end() - 1], marker.end()
        if code != END:
            end += int.from_bytes(data[end : end + 2], "big")
        yield code, marker.start(), end
        if code == END:
            return


def without_damaged_segments(data: bytes) -> bytes:
    """The file without the segments of applications that Pillow cannot read. Issues a FidelityWarning for them."""
    segments = list(takewhile(lambda segment: segment[0] != _SCAN[1], read_segments(data)))
    optional = [(start, end) for code, start, end in segments if 0xE0 <= code <= 0xEF]
    scan = data.find(_SCAN, segments[-1][2] if segments else 2)
    needed = b"".join(data[start:end] for code, start, end in segments if not 0xE0 <= code <= 0xEF)

    def header(blocks: Sequence[bytes]) -> bytes:
        return b"".join([data[:2], *blocks, needed, data[scan : scan + _MAX_SCAN_HEADER]])

    damaged = _pillow.damaged_blocks("JPEG", [data[start:end] for start, end in optional], header)
    if damaged:
        _pillow.warn_damaged()
    for index in reversed(damaged):
        start, end = optional[index]
        data = data[:start] + data[end:]
    return data


def filter_segments(data: bytes, metadata: Metadata) -> bytes:
    """The file with filtered metadata and unchanged pixels; `all` returns `data`.

    Keeps the profile. Removes comments, data of applications, previews, and everything after the picture. Warns of
    pictures there.
    """
    if metadata == "all":
        return data
    _jpeg_pictures.warn_of_further(data, read_segments)
    parts = [data[:2]]
    position = 2
    for code, start, end in read_segments(data):
        parts.append(data[position:start])  # entropy-coded data
        if code == END:
            break
        position, segment = end, data[start:end]
        if code == _COMMENT or 0xE0 <= code <= 0xEF:
            segment = _filter_segment(code, segment[4:], metadata)
        parts.append(segment)
    else:
        parts.append(data[position:])
    return b"".join(parts) + b"\xff\xd9"


def _filter_segment(code: int, body: bytes, metadata: Metadata) -> bytes:
    """The segment of an application or a comment with what is left of its body; empty without."""
    kept: bytes | None = None
    if code == 0xE0 and body.startswith(b"JFIF\0"):
        kept = body[:12] + b"\0\0"  # without a preview
    elif code == 0xE1 and body.startswith(_exif.PREFIX):
        kept = filter_exif(body, metadata)
    elif code == 0xE1 and body.startswith(_XMP):
        packet = filter_xmp(body.removeprefix(_XMP), metadata)
        kept = _XMP + packet if packet else None
    elif code == _APP13 and body.startswith(_PHOTOSHOP):
        iptc = filter_iptc(_iptc.from_resources(body.removeprefix(_PHOTOSHOP)), metadata)
        kept = _PHOTOSHOP + _iptc.to_resources(iptc) if iptc else None
    elif (code == 0xE2 and body.startswith(b"ICC_PROFILE\0")) or (code == 0xEE and body.startswith(b"Adobe")):
        kept = body
    if kept is None or len(kept) > _MAX_SEGMENT:
        return b""
    return _segment(code, kept)
