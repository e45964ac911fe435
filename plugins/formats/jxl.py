"""JPEG XL (ISO/IEC 18181), still and animated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    Content,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    GainMap,
    ImageMetadata,
    ImageSource,
    Loss,
    OptionValues,
    Raster,
    Requirement,
    Signature,
    TargetCapabilities,
    any_of,
    boxes_are_complete,
    color,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Dpi, Effort, Hdr, Lossless, Metadata, Pages, Quality
from plugins._jpeg import segments, ultra_hdr
from plugins._jxl.library import find
from plugins._metadata import exif_data
from plugins._pixels import linear_light, pillow
from plugins.formats import jpeg
from plugins.formats.jpeg import JPEG
from plugins.operations import metadata as filters

if TYPE_CHECKING:
    from numpy.typing import NDArray


with lazy_imports():
    import numpy as np

    from plugins._jxl import reader, writer

_CONTAINER = b"\0\0\0\x0cJXL \r\n\x87\n"


def _is_complete(content: Content) -> bool:
    """Whether the boxes of a file are complete; the end of a codestream without them is known to its decoder only."""
    return content[: len(_CONTAINER)] != _CONTAINER or boxes_are_complete(content)


JXL = FileFormat(
    "jxl",
    media_type="image/jxl",
    extensions=("jxl",),
    sniff=any_of(Signature((0, _CONTAINER)), Signature((0, b"\xff\x0a"))),
    lossy=True,
    animated=True,
    bytes_per_pixel=0.05,
    is_complete=_is_complete,
)
LIBJXL = Requirement(
    "libjxl 0.9 to 0.11", "reading and writing JPEG XL", "pip install 'imagecodecs<2026.8'", present=find() is not None
)

MODULES = ("plugins._jxl.writer", *jpeg.MODULES)
_MODES = ("L", "LA", "RGB", "RGBA")
_INKS = "CMYK"
_MAX_BITS = 16
_MAX_PIXELS = 40_000_000  # a JPEG whose coefficients are kept has all of them in memory
_EXIF = b"Exif"
_XMP = b"xml "
_OFFSET = 4  # bytes before the EXIF block, with the offset of its start
_PLAIN_BOXES = frozenset({b"JXL ", b"ftyp", b"jxll", b"jxlc", b"jxlp", b"jxli", b"jbrd"})
# Megapixels, and the highest effort for images up to that size: without loss, and with it. Efforts of 8 and 9 take a
# multiple of the time, and with loss 280 bytes per pixel.
_LOSSLESS_EFFORTS = ((1, 9), (2, 8), (6, 7), (20, 5))
_LOSSY_EFFORTS = ((1, 9), (20, 7), (60, 5))
_LARGEST_EFFORT = 3


@conversion(JXL, RASTER, cost=3, memory=28)
def decode(data: bytes, *, pages: Pages | None = None, hdr: Hdr = "keep") -> Raster:
    """Floats of which some are brighter than white are linear light."""
    header = reader.read_header(data)
    order = pillow.select(list(range(len(header.durations))), pages)
    decode_frames = partial(_frames, data, header)
    mode = _INKS if header.inks is not None and header.mode == "RGB" else header.mode
    sample = pillow.sample(mode, header.profile)
    raster = Raster(
        (replace(frame, pixels=frame.image) for frame in pillow.in_order(order, decode_frames)),
        count=len(order),
        animated=header.animated and len(order) > 1,
        loop_count=header.loop_count,
        metadata=ImageMetadata(
            exif=_exif_block(header.boxes.get(_EXIF)),
            xmp=pillow.upright_xmp(header.boxes.get(_XMP) or None),
        ),
        source=ImageSource(
            lossy=header.lossy,
            turned=header.orientation > 1,
            bare=header.boxes.keys() <= _PLAIN_BOXES,
            bit_depth=header.bits if header.is_deep else 16,
        ),
        hdr=header.hdr,
        sample=sample,
        sizes=[header.size] * (len(order) if header.animated else 1),
    )
    if header.is_float and not header.animated and header.hdr is None and header.inks is None:
        light = reader.read_light(data, header)
        if light is not None:
            return _with_light(raster, light, header)
    if hdr == "keep" and not header.animated and header.hdr is None:
        raster = replace(raster, gain_map=writer.read_box(header.boxes.get(writer.BOX), header.size))
    if not header.is_deep:
        return raster
    deep_sample = replace(sample, pixels=DeepPixels.from_image(sample.image))
    return replace(raster, deep_frames=pillow.in_order(order, decode_frames), sample=deep_sample)


def _with_light(raster: Raster, light: NDArray[Any], header: reader.Header) -> Raster:
    """The raster with linear light in place of its pixels."""
    mode = {"L": "L", "LA": "RGBA"}.get(header.mode, header.mode)
    pixels = light[..., [0, 0, 0, 1]] if header.mode == "LA" else light[..., 0] if mode == "L" else light
    bright = linear_light.raster(lambda: pixels, mode, header.size, bits=header.bits, exposure=0)
    return replace(bright, metadata=raster.metadata, source=replace(raster.source, bit_depth=header.bits))


def _exif_block(content: bytes | None) -> bytes | None:
    if not content:
        return None
    return exif_data.upright(exif_data.PREFIX + content[_OFFSET + int.from_bytes(content[:_OFFSET]) :])


def _frames(data: bytes, header: reader.Header, order: Sequence[int]) -> Iterator[Frame]:
    if header.bits > _MAX_BITS:
        FidelityWarning.issue("depth_reduced", f"Samples of {header.bits} bits are converted with {_MAX_BITS}.")
    for index, array in zip(order, reader.read_frames(data, header, order), strict=True):
        pixels, profile = _pixels(array, header)
        yield Frame(pixels, profile, header.durations[index])
        del pixels, array


def _pixels(array: NDArray[Any], header: reader.Header) -> tuple[Image.Image | DeepPixels, bytes | None]:
    """Decoded samples and their profile. Inks with transparency become sRGB, for which there is a mode."""
    if header.inks is None:
        bands = array[..., 0] if header.mode == "L" else array
        return DeepPixels(bands, header.mode) if header.is_deep else Image.fromarray(bands), header.profile
    inks = ~array[..., [0, 1, 2, -1]]
    if not header.mode.endswith("A"):
        return DeepPixels(inks, _INKS) if header.is_deep else Image.fromarray(inks, _INKS), header.profile
    image = DeepPixels(inks, _INKS).as_image() if header.is_deep else Image.fromarray(inks, _INKS)
    colored, profile = color.convert_for(image, header.profile, ("RGB",), keep_profile=False)
    colored.putalpha(Image.fromarray(color.to_8_bits(array[..., 3]) if header.is_deep else array[..., 3]))
    return DeepPixels.from_image(colored) if header.is_deep else colored, profile


_CAPABILITIES = TargetCapabilities(
    _MODES,
    deep_modes=_MODES,
    deep_bits=(10, 12, 16),
    icc=True,
    hdr=True,
    gain_map=True,
    animation_modes=_MODES,
    encoding=True,
    metadata=frozenset({"exif", "xmp"}),
)


def _holds(options: OptionValues) -> TargetCapabilities:
    """Inks are kept only without loss."""
    return replace(_CAPABILITIES, modes=(*_MODES, _INKS)) if options.get("lossless") else _CAPABILITIES


@conversion(RASTER, JXL, loss=Loss.DETAIL, cost=12, memory=28, capabilities=_holds)
def encode(raster: Raster, *, quality: Quality = 85, lossless: Lossless = False, effort: Effort = 5) -> bytes:
    frames = [_with_profile(frame) for frame in raster.frames]
    width, height = frames[0].size
    encoding = writer.Encoding(
        quality=quality,
        lossless=lossless,
        effort=_effort(effort, width * height * len(frames), lossless=lossless),
        bits=raster.bit_depth or 8 if isinstance(frames[0].pixels, DeepPixels) else 8,
        profile=frames[0].icc_profile,
        hdr=raster.hdr,
        loop_count=raster.loop_count,
        boxes=tuple(_boxes(raster)),
    )
    mode = _common_mode([frame.pixels.mode for frame in frames])
    samples = [_samples(frame.pixels, mode, encoding.bits) for frame in frames]
    # Rounding times and not durations keeps the total.
    ends = [round(end) for end in accumulate((frame.duration for frame in frames), initial=0.0)]
    durations = [after - before for before, after in pairwise(ends)] if len(frames) > 1 else []
    return writer.write(samples, durations, mode, encoding)


def _with_profile(frame: Frame) -> Frame:
    """The frame; one of inks without profile in sRGB, because JPEG XL describes inks by their profile only."""
    if frame.pixels.mode != _INKS or frame.icc_profile:
        return frame
    image, profile = color.convert_for(frame.image, None, ("RGB",), keep_profile=True)
    return replace(frame, pixels=image, icc_profile=profile)


def _boxes(raster: Raster) -> Iterator[tuple[bytes, bytes]]:
    metadata = raster.metadata
    if metadata.exif:
        yield _EXIF, bytes(_OFFSET) + metadata.exif.removeprefix(exif_data.PREFIX)
    if metadata.xmp:
        yield _XMP, metadata.xmp
    if raster.gain_map:
        yield writer.write_box(raster.gain_map)


def _common_mode(modes: Sequence[str]) -> str:
    """The mode that holds frames of these modes."""
    if len(set(modes)) == 1:
        return modes[0]
    colors = "L" if all(mode in ("L", "LA") for mode in modes) else "RGB"
    return colors + ("A" if any(mode.endswith("A") for mode in modes) else "")


def _samples(pixels: Image.Image | DeepPixels, mode: str, bits: int) -> NDArray[Any]:
    """The samples of an image as the encoder takes them: of inks, 0 is the most."""
    if isinstance(pixels, DeepPixels):
        return pixels.to_bits(bits)
    array = np.asarray(pixels if pixels.mode == mode else pixels.convert(mode))
    return ~array if mode == _INKS else array


def _effort(effort: int, pixels: int, *, lossless: bool) -> int:
    """The effort of libjxl: larger images are encoded faster, so that they take at most some 10 seconds."""
    limits = _LOSSLESS_EFFORTS if lossless else _LOSSY_EFFORTS
    return min(effort, next((highest for limit, highest in limits if pixels <= limit * 1_000_000), _LARGEST_EFFORT))


@conversion(JPEG, JXL, terminal=True, cost=12, memory=28)
def from_jpeg(
    data: bytes, *, metadata: Metadata = "safe", effort: Effort = 5, hdr: Hdr = "keep", dpi: Dpi | None = None
) -> bytes:
    """Keeps the coefficients of the JPEG, from which its bytes can be made again."""
    segments.check_scans(data)
    data, image = segments.open_file(data)
    if not (segments.inspect_coding(data)[1] or segments.is_decodable(image)):
        raise OSError("truncated")
    pixels = image.width * image.height
    size = pillow.upright_size(image)
    orientation = exif_data.read_orientation(image)
    others = segments.find_others(data, segments.read_segments) if hdr == "keep" else []
    gain_map = ultra_hdr.read(data, others, size, orientation)
    boxes = [writer.write_box(gain_map)] if gain_map else []
    if pixels <= _MAX_PIXELS:
        stated = None if metadata == "all" else orientation
        kept = segments.filter_segments(data, metadata, gain_map=False, dpi=dpi, orientation=stated)
        profile = segments.described_profile(kept)
        written = writer.write_jpeg(kept, image.size, _effort(effort, pixels, lossless=False), boxes, profile)
        if written is not None:
            return written
    FidelityWarning.issue("jpeg_reencoded", "The coding of the JPEG could not be kept, and it was encoded again.")
    raster = filters.metadata(jpeg.decode(data, {"hdr": hdr}), _given(metadata, dpi))
    return encode(raster, {"effort": effort})


def _given(metadata: Metadata, dpi: int | None) -> OptionValues:
    return {"metadata": metadata, **({"dpi": dpi} if dpi else {})}


@conversion(JXL, JPEG, loss=Loss.DETAIL, terminal=True, cost=2, restores=True)
def to_jpeg(data: bytes, *, metadata: Metadata = "safe", hdr: Hdr = "keep", dpi: Dpi | None = None) -> bytes:
    """The JPEG from which the file was made, or else its pixels as JPEG."""
    original = reader.read_jpeg(data)
    if original is None:
        return jpeg.encode(filters.metadata(decode(data, {"hdr": hdr}), _given(metadata, dpi)))
    header = reader.read_header(data)
    filtered = segments.filter_segments(original, metadata, gain_map=False, dpi=dpi, orientation=header.orientation)
    others = segments.find_others(original, segments.read_segments) if metadata == "all" else []
    has_own = segments.find_gain_map(others) is not None
    gain_map = None if has_own or hdr == "drop" else writer.read_box(header.boxes.get(writer.BOX), header.size)
    if gain_map is None:
        return filtered
    return ultra_hdr.join(filtered, segments.read_segments, _stored(gain_map, header.orientation))


def _stored(gain_map: GainMap, orientation: int) -> GainMap:
    """The gain map of an image that the orientation turns upright."""
    turned = pillow.apply_orientation(np.asarray(gain_map.frame.image), {6: 8, 8: 6}.get(orientation, orientation))
    return gain_map.with_image(Image.fromarray(turned))


@hookimpl
def conversions() -> list[AnyConversion]:
    """Steps that work on this machine."""
    return [decode, encode, from_jpeg, to_jpeg] if LIBJXL.present else []
