"""Decoding to Raster and encoding with Pillow, also of 1 bit per sample as TIFF and PDF store it."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageChops, ImageFile, PngImagePlugin, TiffImagePlugin

from engine import (
    MAX_FRAMES,
    MAX_PIXELS,
    FidelityWarning,
    Frame,
    ImageMetadata,
    ImageSource,
    PageRanges,
    Raster,
    Size,
    TooLarge,
    color,
    lazy_imports,
)
from plugins._metadata import exif_data, iptc_data

with lazy_imports():
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_JPEG_BYTES = 8  # bytes per pixel; noise at quality 100 needs them

# What Pillow reports about a file besides metadata.
_PLAIN_INFO = frozenset(
    {"adobe", "adobe_transform", "aspect", "background", "bbox", "bit_depth", "blend", "chroma", "chromaticity"}
    | {"compression", "default_image", "disposal", "dpi", "duration", "extension", "gamma", "icc_profile", "interlace"}
    | {"jfif", "jfif_density", "jfif_unit", "jfif_version", "loop", "primary", "progression", "progressive"}
    | {"resolution", "srgb", "timestamp", "transparency", "version"}
)
_MAX_BLOCKS = 1000
DAMAGES = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error, zlib.error)
"""What Pillow raises for damaged metadata."""
_NO_TEXTS = ("XML:", "Raw profile type ", "xmp")  # keywords of XMP and other metadata in the texts of PNG
_PLAIN_SEGMENTS = frozenset({"APP0", "APP2", "APP14"})  # JPEG: JFIF, profile, color transform
_Turn = Image.Transpose
_UPRIGHT = MappingProxyType(  # by EXIF orientation
    {2: _Turn.FLIP_LEFT_RIGHT, 3: _Turn.ROTATE_180, 4: _Turn.FLIP_TOP_BOTTOM, 5: _Turn.TRANSPOSE}
    | {6: _Turn.ROTATE_270, 7: _Turn.TRANSVERSE, 8: _Turn.ROTATE_90}
)
# Gain maps, videos and other parts of a file that XMP announces.
_XMP_PARTS = re.compile(
    rb"""\s(?:hdrgm:Version|\w{1,20}:(?:MotionPhoto|MicroVideo)\w{0,40})=(?:"[^"]*"|'[^']*')"""
    rb"|<(hdrgm:Version|\w{1,20}:(?:MotionPhoto|MicroVideo)\w{0,40})>[^<]*</\1>"
    rb"|<(G?Container:Directory)>.*?(?:</\2>|\Z)",
    re.DOTALL,
)
_XMP_ORIENTATION = re.compile(rb"""(tiff:Orientation(?:=["']|>))[2-8](?=["'<])""")


def open_image(data: bytes, *decoders: str) -> Image.Image:
    """Reads the header of an image with one of the named decoders. Raises TooLarge."""
    try:
        image = Image.open(BytesIO(data), formats=decoders)
    except Image.DecompressionBombError as error:
        raise TooLarge(
            f"The image exceeds the limit of {MAX_PIXELS} pixels.",
            reason="pixels",
            details={"max_pixels": MAX_PIXELS, "pixels": _pixel_count(error)},
        ) from error
    except ValueError as error:
        if "MAX_TEXT" not in str(error):
            raise
        limit = PngImagePlugin.MAX_TEXT_CHUNK
        message = f"A text or profile in the file exceeds {limit} bytes after decompression."
        raise TooLarge(message, reason="bytes", details={"max_bytes": limit}) from error
    return image


def damaged_blocks(decoder: str, blocks: Sequence[bytes], header: Callable[[Sequence[bytes]], bytes]) -> list[int]:
    """The indexes of the blocks with which Pillow cannot open a file.

    `header` returns a file with some of the blocks and everything that is needed to open it.
    """
    if _opens(decoder, header(blocks)):
        return []
    found = [index for index, block in enumerate(blocks[:_MAX_BLOCKS]) if not _opens(decoder, header([block]))]
    return found if _opens(decoder, header([])) else []


def warn_damaged() -> None:
    """Issues the warning for blocks that are left out."""
    FidelityWarning.issue("metadata_damaged", "Damaged parts of the file were left out.")


def warn_of_video() -> None:
    """Issues the warning for the video of a motion photo, which is lost."""
    FidelityWarning.issue("frames_dropped", "The video of the motion photo was dropped.")


def _opens(decoder: str, data: bytes) -> bool:
    try:
        open_image(data, decoder)
    except DAMAGES:
        return False
    return True


def _pixel_count(error: Image.DecompressionBombError) -> int | None:
    """The number of pixels, which Pillow reports only in the message."""
    match = re.search(r"\((\d+) pixels\)", str(error))
    return int(match[1]) if match else None


def decode(
    data: bytes,
    decoder: str,
    *,
    animated: bool = False,
    paged: bool = False,
    lossy: bool = False,
    pages: str | None = None,
) -> Raster:
    """Decodes a file: upright frames, profile, EXIF, XMP and resolution.

    Several frames are an animation if `animated`, pages if `paged`; otherwise only the first is decoded. `pages` are
    those to decode.
    """
    image = open_image(data, decoder)
    # One more than the limit is enough to be refused.
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES + 1) if animated or paged else 1
    # HEIF opens at the primary image, which may not be the first in the file.
    primary = image.tell()
    order = select([primary, *(index for index in range(count) if index != primary)][:count], pages)
    return to_raster(image, order, animated=animated and len(order) > 1, lossy=lossy)


def select(order: list[int], pages: str | None) -> list[int]:
    """The images in `order` that the option `pages` selects, in its order. Raises InvalidOption."""
    return order if pages is None else [order[index] for index in PageRanges.parse(pages).indexes(len(order))]


def in_order(order: Sequence[int], decode: Callable[[Sequence[int]], Iterator[Frame]]) -> Iterator[Frame]:
    """The frames whose indexes are in `order`, from a decoder that yields those of ascending indexes.

    Frames that are shown after later ones stay in memory until then.
    """
    ascending = sorted(order)
    indexes = iter(ascending)
    frames = decode(ascending)
    waiting: dict[int, Frame] = {}
    for index in order:
        while index not in waiting:
            waiting[next(indexes)] = next(frames)
        yield waiting.pop(index)


def to_raster(
    image: Image.Image,
    order: list[int],
    *,
    animated: bool = False,
    lossy: bool = False,
    sizes: Sequence[Size] = (),
) -> Raster:
    """The frames of an opened image, in `order`. `sizes` are needed if the frames differ in size."""
    orientation = exif_data.read_orientation(image)
    dpi = read_dpi(image)
    return Raster(
        in_order(order, partial(_frames, image)) if animated else _frames(image, order),
        count=len(order),
        animated=animated,
        loop_count=int(image.info.get("loop", 0) or 0),
        metadata=ImageMetadata(
            exif=exif_data.read(image),
            xmp=upright_xmp(image.info.get("xmp")),
            iptc=iptc_data.read(image.info),
            text=_read_text(image),
        ),
        dpi=dpi[::-1] if dpi and orientation >= 5 else dpi,
        source=ImageSource(
            lossy=lossy,
            turned=orientation > 1,
            palette=image.mode == "P",
            bare=_is_bare(image) and (animated or len(order) == 1),  # other images can have metadata of their own
        ),
        sample=sample(_sample_mode(image), image.info.get("icc_profile")),
        sizes=sizes or [upright_size(image)] * (len(order) if animated else 1),
    )


def sample(mode: str, profile: bytes | None = None) -> Frame:
    """The sample of a raster whose frames have this mode."""
    return Frame(Image.new(mode, (1, 1)), profile)


def _sample_mode(image: Image.Image) -> str:
    """The mode of the frames of an opened image; a mode with alpha if a color is transparent."""
    if "transparency" not in image.info:
        return image.mode
    return "LA" if image.mode in ("1", "L", "I", "I;16", "I;16B") else "RGBA"


def upright_size(image: Image.Image) -> Size:
    """The size of an image after its EXIF orientation is applied."""
    return image.size[::-1] if exif_data.read_orientation(image) >= 5 else image.size


def _frames(image: Image.Image, order: Sequence[int]) -> Iterator[Frame]:
    for index in order:
        if index != image.tell():
            image.seek(index)
        image.load()
        duration = float(image.info.get("duration", 0) or 0)
        # Encoders seek in a file that is positioned at a later frame.
        frame = image.copy() if len(order) > 1 or index else image
        profile = frame.info.get("icc_profile")
        frame = upright(frame, frame)
        yield Frame(frame, profile, duration)
        del frame  # frees its memory before the next one is decoded


def upright(pixels: Image.Image, header: Image.Image) -> Image.Image:
    """`pixels` with the EXIF orientation of the opened file applied."""
    orientation = exif_data.read_orientation(header)
    return pixels.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else pixels


def _is_bare(image: Image.Image) -> bool:
    """Whether everything that Pillow found in the file is known not to be metadata."""
    unknown = {key for key, value in image.info.items() if value and key not in _PLAIN_INFO}
    segments = [
        body for name, body in getattr(image, "applist", ()) if name not in _PLAIN_SEGMENTS or _has_preview(body)
    ]
    tags = {tag for tag in getattr(image, "tag_v2", {}) if tag not in exif_data.STRUCTURAL}
    return not (unknown or segments or tags or getattr(image, "private_chunks", []))


def _read_text(image: Image.Image) -> tuple[tuple[str, str], ...]:
    """Comments, and the texts of PNG with their keywords."""
    comment = image.info.get("comment")
    if isinstance(comment, bytes):
        return (("Comment", iptc_data.decode(comment)),) if comment else ()
    texts = image.info.items() if image.format == "PNG" else ()
    named = ((str(key), text) for key, text in texts if isinstance(text, str))
    return tuple((key, str(text)) for key, text in named if not key.startswith(_NO_TEXTS))


def _has_preview(segment: bytes) -> bool:
    """Whether a segment of a JPEG is a JFIF header with a preview, or its extension, which is one."""
    return segment.startswith(b"JFXX") or (segment.startswith(b"JFIF") and segment[12:14] != b"\0\0")


def upright_xmp(packet: object) -> bytes | None:
    """An XMP packet, as bytes or text, for upright pixels: with the orientation reset. None for other values.

    It does not announce a gain map or a video either, because a raster has none.
    """
    packet = packet.encode() if isinstance(packet, str) else packet
    return _XMP_PARTS.sub(b"", _XMP_ORIENTATION.sub(rb"\g<1>1", packet)) if isinstance(packet, bytes) else None


def read_dpi(image: Image.Image) -> tuple[float, float] | None:
    """Horizontal and vertical dots per inch. None if missing or not within 10 to 10,000."""
    return plausible_dpi(image.info.get("dpi"))


def plausible_dpi(dpi: Any) -> tuple[float, float] | None:
    """Two numbers as dots per inch. None for other values, and for numbers not within 10 to 10,000."""
    try:
        across, down = (float(value) for value in dpi)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if 10 <= across <= 10_000 and 10 <= down <= 10_000 else None


def transparent_inks(array: NDArray[Any], maximum: int, profile: bytes | None) -> Image.Image:
    """CMYK with transparency as RGBA in sRGB, because no raster has both. Issues warnings.

    `array` has rows x columns x 5 samples from 0 to `maximum`.
    """
    if maximum > 255:
        color.warn_of_depth(8)
    samples = color.scale(array, maximum, 255).astype(np.uint8)
    image = color.reduced_to_srgb(Image.fromarray(samples[..., :4], "CMYK"), profile)
    image.putalpha(Image.fromarray(samples[..., 4]))
    return image


def apply_orientation(array: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turns an array of height x width (x bands) upright, from an EXIF orientation of 1 to 8."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def animation_parameters(raster: Raster, frames: list[Frame]) -> dict[str, Any]:
    """The parameters of Pillow's encoders for an animation; empty for a single frame."""
    if len(frames) == 1:
        return {}
    return {
        "save_all": True,
        "append_images": [frame.image for frame in frames[1:]],
        "duration": whole_durations(frames),
        "loop": raster.loop_count,
    }


def whole_durations(frames: Sequence[Frame]) -> list[int]:
    """The durations of frames in milliseconds, rounded so that their sum stays."""
    ends = [round(end) for end in accumulate((frame.duration for frame in frames), initial=0.0)]
    return [after - before for before, after in pairwise(ends)]


def encode_jpeg(image: Image.Image, **parameters: Any) -> bytes:
    """Encodes a JPEG, with larger buffers if the file exceeds Pillow's."""
    if image.mode == "CMYK":
        parameters["subsampling"] = "4:4:4"  # otherwise inks would lose resolution, not colors
    image.load()  # an error of its file is no matter of buffers
    try:
        return encode(image, "JPEG", **parameters)
    except OSError:
        # Progressive and optimized files must fit into the buffer, whose size suits photos but not noise.
        default = ImageFile.MAXBLOCK
        ImageFile.MAXBLOCK = _MAX_JPEG_BYTES * image.width * image.height
        try:
            return encode(image, "JPEG", **parameters)
        finally:
            ImageFile.MAXBLOCK = default


def encode(image: Image.Image, encoder: str, **parameters: Any) -> bytes:
    """Encodes `image`. Parameters that are None are left out."""
    # Encoders would read the decoder's settings (compression, palettes, loops) from `info`.
    image.info = {key: image.info[key] for key in ("transparency",) if key in image.info}
    buffer = BytesIO()
    image.save(buffer, encoder, **{key: value for key, value in parameters.items() if value is not None})
    return buffer.getvalue()


def compress_bilevel(image: Image.Image) -> tuple[bool, bytes]:
    """The samples of an image of mode 1, of which 0 is white: whether by Group 4 or by deflate, and the smaller."""
    inverted = ImageChops.invert(image)
    group4 = _group4(inverted)
    deflated = zlib.compress(inverted.tobytes())
    return len(group4) <= len(deflated), min(group4, deflated, key=len)


def _group4(image: Image.Image) -> bytes:
    """An image of mode 1 compressed by Group 4, as one strip."""
    file = BytesIO()
    image.save(file, "TIFF", compression="group4", strip_size=image.width * image.height)
    data = file.getvalue()
    with TiffImagePlugin.TiffImageFile(BytesIO(data)) as written:
        (offset,) = written.tag_v2[TiffImagePlugin.STRIPOFFSETS]
        (size,) = written.tag_v2[TiffImagePlugin.STRIPBYTECOUNTS]
    return data[offset : offset + size]
