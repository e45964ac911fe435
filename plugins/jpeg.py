"""JPEG (ISO/IEC 10918)."""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from PIL import Image

from engine import (
    RASTER,
    FileFormat,
    Loss,
    Origin,
    Raster,
    Signature,
    TargetCapabilities,
    TooLarge,
    color,
    conversion,
    ends_with,
)
from engine.option_types import Effort, Hdr, Metadata, Progressive, Quality, Subsampling
from plugins import _exif, _iptc, _jpeg_pictures, _metadata_writing, _pillow, _ultra_hdr
from plugins._jpeg_encoding import encoding_for, encoding_of
from plugins._jpeg_transform import TURBOJPEG as TURBOJPEG
from plugins._jpeg_transform import transform
from plugins._sizes import Drawing, reduced_scale
from plugins.metadata import filter_exif, filter_iptc, filter_xmp

JPEG = FileFormat(
    "jpeg",
    media_type="image/jpeg",
    extensions=("jpg", "jpeg", "jpe", "jfif"),
    sniff=Signature((0, b"\xff\xd8\xff")),
    lossy=True,
    is_complete=ends_with(b"\xff\xd9"),
)

MODULES = ("PIL.MpoImagePlugin",)

_DEFAULT_EFFORT = 5  # more computes optimal Huffman tables
_MAX_SEGMENT = 65_500  # bytes; the limit of one APP1 segment
_MAX_BODY = 65_533  # bytes; what any segment can hold
_SCAN = b"\xff\xda"
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # not stuffing, a restart or another one without a length
END, _APP13, _COMMENT = 0xD9, 0xED, 0xFE  # markers; END has no length either
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_PHOTOSHOP = b"Photoshop 3.0\0"
_MAX_SCAN_HEADER = 100  # bytes, of which a header of a scan has at most 16
_JFIF, _ADOBE = 0xE0, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame, by coding process
_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended and progressive, which all readers decode
_MAX_GROWTH = 1.02  # more shows that the library wrote a baseline file without the optimal tables of its source
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


@conversion(JPEG, RASTER, memory=4, reduces=True)
def decode(
    data: bytes,
    *,
    drawing: Drawing,
    hdr: Hdr = "keep",
) -> Raster:
    """Decodes at 1/2, 1/4 or 1/8 of the size if that is enough for the requested one."""
    check_scans(data)
    data, image = open_file(data)
    others = _jpeg_pictures.find_others(data, read_segments)
    _jpeg_pictures.warn_of_lost(others, gain_map=False)
    size = _pillow.upright_size(image)
    scale = reduced_scale(size, drawing.needed_size(size))
    orientation = _exif.read_orientation(image)
    origin = Origin(JPEG, data, (0, 0, *image.size), orientation)
    gain_map = _ultra_hdr.read(data, others, size, orientation) if hdr == "keep" else None
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))
    raster = replace(_pillow.to_raster(image, [0], lossy=True), origin=origin, gain_map=gain_map)
    if scale == 1:
        return raster
    reduced = raster.map(lambda frame: replace(frame, full_size=size))
    return replace(reduced, sizes=[size], drawn_sizes=raster.sizes)


_HOLDS = TargetCapabilities(
    ("L", "RGB", "CMYK"),
    icc=True,
    gain_map=True,
    max_side=65_500,
    encoding=True,
    metadata=frozenset({"exif", "xmp", "iptc", "text", "resolution"}),
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
    """Keeps the coefficients of a JPEG if the changes of its pixels allow it, otherwise its tables and its sampling."""
    data = _encode(raster, quality=quality, effort=effort, progressive=progressive, subsampling=subsampling)
    return _ultra_hdr.join(data, read_segments, raster.gain_map) if raster.gain_map else data


def _encode(raster: Raster, *, quality: int, effort: int, progressive: bool, subsampling: Subsampling | None) -> bytes:
    optimize = effort > _DEFAULT_EFFORT
    own: dict[str, Any] = {}
    if raster.origin and raster.origin.format == JPEG:
        source = _pillow.open_image(raster.origin.data, "JPEG")
        own = encoding_of(source, raster.origin.orientation)
        if subsampling in (None, own["subsampling"]):
            kept = _keep_coefficients(raster, raster.origin, source, progressive=progressive)
            if kept is not None:
                return kept
    frame = raster.first_frame()
    if own and raster.origin and frame.size == raster.origin.size:  # the file must not grow
        progressive, optimize = progressive or "progressive" in source.info, True
    if frame.image.mode == "CMYK":
        subsampling = "4:4:4"  # its inks have equal rights
    parameters = encoding_for(quality, subsampling) | own
    if subsampling:
        parameters["subsampling"] = subsampling
    return _pillow.encode_jpeg(
        frame.image, **parameters, optimize=optimize, progressive=progressive, **_metadata(raster, frame.icc_profile)
    )


def _metadata(raster: Raster, profile: bytes | None) -> dict[str, Any]:
    """Pillow's parameters for the metadata."""
    return {
        "icc_profile": profile,
        "exif": raster.exif,
        "xmp": raster.xmp,
        "extra": _other_segments(raster),
        "dpi": raster.dpi,
    }


def _other_segments(raster: Raster) -> bytes:
    """The segments of IPTC and comments, which are cut at the limit of a segment."""
    segments = [_segment(_COMMENT, comment[:_MAX_SEGMENT]) for comment in _metadata_writing.comments(raster)]
    if raster.iptc:
        segments.append(_segment(_APP13, _PHOTOSHOP + _iptc.to_resources(raster.iptc)))
    return b"".join(segments)


def _segment(code: int, body: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(body) + 2).to_bytes(2, "big") + body


def _keep_coefficients(raster: Raster, origin: Origin, source: Image.Image, *, progressive: bool) -> bytes | None:
    """The file, cut and turned as its pixels were. None if the coefficients do not allow that, or are damaged."""
    if not (origin.exact and all(inspect_coding(origin.data))):
        return None
    box = None if origin.box == (0, 0, *source.size) else origin.box
    was_progressive = "progressive" in source.info
    if box is None and origin.orientation == 1 and progressive <= was_progressive:
        data = origin.data if is_decodable(source) else None
    else:
        change = partial(transform, origin.data, orientation=origin.orientation, box=box)
        data = change(progressive=progressive or was_progressive)
        if data is not None and len(data) > len(origin.data) * _MAX_GROWTH:
            data = change(progressive=True)
    return None if data is None else _with_metadata(data, source, raster)


def _with_metadata(data: bytes, source: Image.Image, raster: Raster) -> bytes:
    """A JPEG with the metadata of the raster and the profile of its source, instead of its own."""
    profile = color.matching_profile(source.mode, source.info.get("icc_profile"))
    smallest = _pillow.encode(Image.new(source.mode, (1, 1)), "JPEG", **_metadata(raster, profile))
    needs_jfif = "jfif" in source.info or (raster.dpi and not raster.exif)  # EXIF has the resolution, too
    left_out = {_ADOBE} if needs_jfif and _may_have_jfif(source) else {_ADOBE, _JFIF}
    added = b"".join(
        smallest[start:end]
        for code, start, end in read_segments(smallest)
        if _is_metadata(code) and code not in left_out
    )
    return _map_segments(data, lambda code, body: body if code == _ADOBE else None, added)


def _may_have_jfif(source: Image.Image) -> bool:
    """Whether the components of a JPEG are gray or YCbCr, which a JFIF header states."""
    if source.mode != "RGB" or "jfif" in source.info:
        return source.mode != "CMYK"
    components: list[tuple[int, int, int, int]] = getattr(source, "layer", [])
    return bool(source.info.get("adobe_transform", bytes(number for number, *_ in components) != b"RGB"))


def inspect_coding(data: bytes) -> tuple[bool, bool]:
    """Whether a JPEG has Huffman coding and 8 bits per sample, and whether it has a scan and an end."""
    codes = [code for code, _, _ in read_segments(data)]
    return next((code for code in codes if code in _FRAMES), None) in _HUFFMAN, _SCAN[1] in codes and codes[-1] == END


def is_decodable(image: Image.Image) -> bool:
    """Whether a JPEG is neither truncated nor damaged. Leaves its picture at a lower size, which takes less time."""
    image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
    try:
        image.load()
    except OSError:
        return False
    return True


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


def open_file(data: bytes) -> tuple[bytes, Image.Image]:
    """The file, without damaged segments of applications, and its picture. Issues a FidelityWarning for segments."""
    try:
        return data, _pillow.open_image(data, "JPEG")
    except _pillow.DAMAGES:
        data = _without_damaged_segments(data)
        return data, _pillow.open_image(data, "JPEG")


def _without_damaged_segments(data: bytes) -> bytes:
    """The file without the segments of applications that Pillow cannot read."""
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


def filter_segments(data: bytes, metadata: Metadata, *, gain_map: bool = True, dpi: int | None = None) -> bytes:
    """The file with filtered metadata and unchanged pixels; `all` returns `data`. `dpi` is another resolution.

    Keeps the profile. Removes comments, data of applications, previews, and everything after the picture. Warns of
    pictures there, and of a `gain_map`.
    """
    if metadata != "all":
        _jpeg_pictures.warn_of_lost(_jpeg_pictures.find_others(data, read_segments), gain_map=gain_map)
        data = _map_segments(data, partial(_filter_body, metadata=metadata))
    return data if dpi is None else _with_resolution(data, dpi)


def _with_resolution(data: bytes, dpi: int) -> bytes:
    """The file with another resolution in JFIF and EXIF; with EXIF if it has none of them."""

    def change(code: int, body: bytes) -> bytes | None:
        if code == _JFIF and body.startswith(b"JFIF\0"):
            return body[:7] + struct.pack(">BHH", 1, dpi, dpi) + body[12:]
        return _exif.with_resolution(body, dpi) if code == 0xE1 and body.startswith(_exif.PREFIX) else body

    bodies = [(code, data[start + 4 : start + 10]) for code, start, _ in read_segments(data)]
    has_place = any(code == _JFIF or body.startswith(_exif.PREFIX) for code, body in bodies)
    return _map_segments(data, change, b"" if has_place else _segment(0xE1, _exif.with_resolution(None, dpi) or b""))


def _map_segments(data: bytes, change: Callable[[int, bytes], bytes | None], added: bytes = b"") -> bytes:
    """The file with other bodies of the segments of metadata, None for none, and the segments `added` before them."""
    parts = [data[:2], added]
    position = 2
    for code, start, end in read_segments(data):
        parts.append(data[position:start])  # entropy-coded data
        if code == END:
            break
        position, segment = end, data[start:end]
        if _is_metadata(code):
            body = change(code, segment[4:])
            segment = b"" if body is None else segment[:2] + (len(body) + 2).to_bytes(2, "big") + body
        parts.append(segment)
    else:
        parts.append(data[position:])
    return b"".join(parts) + b"\xff\xd9"


def _is_metadata(code: int) -> bool:
    """Whether a segment is a comment or of an application."""
    return code == _COMMENT or 0xE0 <= code <= 0xEF


def _filter_body(code: int, body: bytes, metadata: Metadata) -> bytes | None:
    """The remaining body of a comment or of an application's segment. None if nothing remains."""
    kept: bytes | None = None
    if code == _JFIF and body.startswith(b"JFIF\0"):
        kept = body[:12] + b"\0\0"  # without a preview
    elif code == 0xE1 and body.startswith(_exif.PREFIX):
        kept = filter_exif(body, metadata)
    elif code == 0xE1 and body.startswith(_XMP):
        packet = filter_xmp(body.removeprefix(_XMP), metadata)
        kept = _XMP + packet if packet else None
    elif code == _APP13 and body.startswith(_PHOTOSHOP):
        iptc = filter_iptc(_iptc.from_resources(body.removeprefix(_PHOTOSHOP)), metadata)
        kept = _PHOTOSHOP + _iptc.to_resources(iptc) if iptc else None
    elif (code == 0xE2 and body.startswith(b"ICC_PROFILE\0")) or (code == _ADOBE and body.startswith(b"Adobe")):
        kept = body
    return kept if kept is None or len(kept) <= _MAX_BODY else None
