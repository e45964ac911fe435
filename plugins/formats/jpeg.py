"""JPEG (ISO/IEC 10918)."""

from dataclasses import replace
from functools import partial
from typing import Any

from PIL import Image

from engine import (
    RASTER,
    FidelityWarning,
    FileFormat,
    Loss,
    Origin,
    Raster,
    Signature,
    TargetCapabilities,
    color,
    conversion,
    ends_with,
)
from engine.option_types import Effort, Hdr, Progressive, Quality, Subsampling
from plugins._jpeg import segments, ultra_hdr
from plugins._jpeg.embedding import encoding_for, encoding_of
from plugins._jpeg.segments import (
    ADOBE,
    APP13,
    COMMENT,
    JFIF,
    PHOTOSHOP,
    check_scans,
    inspect_coding,
    is_decodable,
    is_metadata,
    map_segments,
    open_file,
    read_segments,
    segment,
)
from plugins._jpeg.transform import TURBOJPEG as TURBOJPEG
from plugins._jpeg.transform import transform
from plugins._metadata import exif_data, iptc_data, writing
from plugins._pixels import pillow
from plugins._pixels.sizes import Drawing, reduced_scale

JPEG = FileFormat(
    "jpeg",
    media_type="image/jpeg",
    extensions=("jpg", "jpeg", "jpe", "jfif"),
    sniff=Signature((0, b"\xff\xd8\xff")),
    lossy=True,
    is_complete=ends_with(b"\xff\xd9"),
)

MODULES = ("PIL.MpoImagePlugin",)

_DEFAULT_EFFORT = 5
_MIN_OPTIMAL_EFFORT = 4  # with less, the tables of Huffman codes are the usual ones
_MIN_PROGRESSIVE_PIXELS = 120_000  # about 20 kB at the default quality; smaller files would hardly become smaller
_MAX_SEGMENT = 65_500  # bytes; the limit of one APP1 segment
_MAX_GROWTH = 1.02  # more shows that the library wrote a baseline file without the optimal tables of its source


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
    others = segments.find_others(data, read_segments)
    segments.warn_of_lost(data, others, gain_map=False)
    size = pillow.upright_size(image)
    scale = reduced_scale(size, drawing.needed_size(size))
    orientation = exif_data.read_orientation(image)
    origin = Origin(JPEG, data, (0, 0, *image.size), orientation)
    gain_map = ultra_hdr.read(data, others, size, orientation) if hdr == "keep" else None
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))
    raster = replace(pillow.to_raster(image, [0], lossy=True), origin=origin, gain_map=gain_map)
    if scale == 1:
        return raster
    reduced = raster.map(lambda frame: replace(frame, full_size=size))
    return replace(reduced, sizes=[size], drawn_sizes=raster.sizes)


_CAPABILITIES = TargetCapabilities(
    ("L", "RGB", "CMYK"),
    icc=True,
    gain_map=True,
    max_side=65_500,
    encoding=True,
    metadata=frozenset({"exif", "xmp", "iptc", "text", "resolution"}),
    max_metadata=_MAX_SEGMENT,
)


@conversion(RASTER, JPEG, loss=Loss.DETAIL, capabilities=_CAPABILITIES)
def encode(
    raster: Raster,
    *,
    quality: Quality = 80,
    effort: Effort = _DEFAULT_EFFORT,
    progressive: Progressive | None = None,
    subsampling: Subsampling | None = None,
) -> bytes:
    """Keeps the coefficients of a JPEG if the changes of its pixels allow it, otherwise its tables and its sampling.

    By default, large images are progressive, because that makes them 5 % smaller.
    """
    data = _encode(raster, quality=quality, effort=effort, progressive=progressive, subsampling=subsampling)
    return ultra_hdr.join(data, read_segments, raster.gain_map) if raster.gain_map else data


def _encode(
    raster: Raster, *, quality: int, effort: int, progressive: bool | None, subsampling: Subsampling | None
) -> bytes:
    optimize = effort >= _MIN_OPTIMAL_EFFORT
    own: dict[str, Any] = {}
    if raster.origin and raster.origin.format == JPEG:
        _, source = open_file(raster.origin.data)
        own = encoding_of(source, raster.origin.orientation)
        if subsampling in (None, own["subsampling"]):
            kept = _keep_coefficients(raster, raster.origin, source, progressive=progressive)
            if kept is not None:
                if effort != _DEFAULT_EFFORT:
                    message = "effort has no effect where the coding of the JPEG is kept."
                    FidelityWarning.issue("option_ignored", message)
                return kept
    frame = raster.first_frame()
    if own and raster.origin and frame.size == raster.origin.size:  # the file must not grow
        optimize = True
        if progressive is None and "progressive" in source.info:
            progressive = True
    if progressive is None:
        progressive = optimize and frame.image.width * frame.image.height >= _MIN_PROGRESSIVE_PIXELS
    if frame.image.mode == "CMYK":
        subsampling = "4:4:4"  # its inks have equal rights
    parameters = encoding_for(quality, subsampling) | own
    if subsampling:
        parameters["subsampling"] = subsampling
    return pillow.encode_jpeg(
        frame.image, **parameters, optimize=optimize, progressive=progressive, **_metadata(raster, frame.icc_profile)
    )


def _metadata(raster: Raster, profile: bytes | None) -> dict[str, Any]:
    """Pillow's parameters for the metadata."""
    return {
        "icc_profile": profile,
        "exif": raster.metadata.exif,
        "xmp": raster.metadata.xmp,
        "extra": _other_segments(raster),
        "dpi": raster.dpi,
    }


def _other_segments(raster: Raster) -> bytes:
    """The segments of IPTC and comments, which are cut at the limit of a segment."""
    segments = [segment(COMMENT, comment[:_MAX_SEGMENT]) for comment in writing.comments(raster)]
    if raster.metadata.iptc:
        segments.append(segment(APP13, PHOTOSHOP + iptc_data.to_resources(raster.metadata.iptc)))
    return b"".join(segments)


def _keep_coefficients(
    raster: Raster, origin: Origin, source: Image.Image, *, progressive: bool | None
) -> bytes | None:
    """The file, cut and turned as its pixels were. None if the coefficients do not allow that, or are damaged."""
    if not (origin.exact and all(inspect_coding(origin.data))):
        return None
    box = None if origin.box == (0, 0, *source.size) else origin.box
    was_progressive = "progressive" in source.info
    if box is None and origin.orientation == 1 and progressive in (None, was_progressive):
        data = origin.data if is_decodable(source) else None
    else:
        change = partial(transform, origin.data, orientation=origin.orientation, box=box)
        data = change(progressive=was_progressive if progressive is None else progressive)
        if progressive is None and data is not None and len(data) > len(origin.data) * _MAX_GROWTH:
            data = change(progressive=True)
    return None if data is None else _with_metadata(data, source, raster)


def _with_metadata(data: bytes, source: Image.Image, raster: Raster) -> bytes:
    """A JPEG with the metadata of the raster and the profile of its source, instead of its own."""
    profile = color.matching_profile(source.mode, source.info.get("icc_profile"))
    smallest = pillow.encode(Image.new(source.mode, (1, 1)), "JPEG", **_metadata(raster, profile))
    needs_jfif = "jfif" in source.info or (raster.dpi and not raster.metadata.exif)  # EXIF has the resolution, too
    left_out = {ADOBE} if needs_jfif and _may_have_jfif(source) else {ADOBE, JFIF}
    added = b"".join(
        smallest[start:end]
        for code, start, end in read_segments(smallest)
        if is_metadata(code) and code not in left_out
    )
    return map_segments(data, lambda code, body: body if code == ADOBE else None, added)


def _may_have_jfif(source: Image.Image) -> bool:
    """Whether the components of a JPEG are gray or YCbCr, which a JFIF header states."""
    if source.mode != "RGB" or "jfif" in source.info:
        return source.mode != "CMYK"
    components: list[tuple[int, int, int, int]] = getattr(source, "layer", [])
    return bool(source.info.get("adobe_transform", bytes(number for number, *_ in components) != b"RGB"))
