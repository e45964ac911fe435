"""AVIF, still and animated."""

from collections.abc import Iterator
from dataclasses import replace

from engine import (
    RASTER,
    AnyConversion,
    Brands,
    DeepPixels,
    FileFormat,
    Frame,
    InvalidOption,
    Loss,
    Raster,
    TargetCapabilities,
    boxes_are_complete,
    conversion,
    hookimpl,
)
from engine.option_types import Effort, Lossless, Pages, Quality
from plugins import _exif, _pillow
from plugins._avif_metadata import add_metadata

AVIF = FileFormat(
    "avif",
    media_type="image/avif",
    extensions=("avif", "avifs"),
    sniff=Brands("avif", "avis"),
    is_complete=boxes_are_complete,
    lossy=True,
    animated=True,
    bytes_per_pixel=0.05,
)

_MODULES = ("PIL.AvifImagePlugin", "imagecodecs._avif")
_BT709, _SRGB, _BT601 = 1, 13, 6  # H.273 code points for primaries, transfer and matrix
_UNSPECIFIED = 2  # primaries and transfer of pictures with a profile
_IDENTITY = 0  # matrix of RGB
_LOSSLESS = 100  # quality
_SPEEDS = (9, 9, 8, 7, 6, 5, 4, 4, 3)  # of libavif by effort; each step below 6 takes a multiple of the time
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


@conversion(AVIF, RASTER, cost=1.5, modules=_MODULES)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    bits = _bit_depth(data)
    raster = _pillow.decode(data, "AVIF", animated=True, lossy=True, pages=pages)
    if bits == 8 or getattr(_pillow.open_image(data, "AVIF"), "n_frames", 1) > 1:
        return raster
    return replace(raster, deep_frames=_decode_deep(data, bits), source_bit_depth=bits)


def _bit_depth(data: bytes) -> int:
    """Bits per sample from the AV1 configuration box: 8, 10 or 12."""
    offset = data.find(b"av1C")
    flags = data[offset + 6] if 0 <= offset < len(data) - 6 else 0
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8


def _decode_deep(data: bytes, bits: int) -> Iterator[Frame]:
    from imagecodecs import avif_decode

    header = _pillow.open_image(data, "AVIF")
    array = avif_decode(data, numthreads=1)
    bands = array.shape[2] if array.ndim == 3 else 1
    array = _pillow.apply_orientation(array, header.getexif().get(_exif.ORIENTATION, 1))
    yield Frame(DeepPixels.from_bits(array, bits, _MODES[bands]), header.info.get("icc_profile"))


@conversion(RASTER, AVIF, loss=Loss.DETAIL, cost=30, memory=28, modules=_MODULES)
def encode(raster: Raster, *, quality: Quality = 70, lossless: Lossless = False, effort: Effort = 5) -> bytes:
    """Writes stills through imagecodecs: more bits per sample, lossless, and in two thirds of the time of Pillow."""
    deep = () if raster.animated else ("L", "RGB", "RGBA")
    target = TargetCapabilities(
        ("RGB", "RGBA"), deep_modes=deep, deep_bits=(10, 12), icc=True, animation=True, max_side=32_768
    )
    converted = raster.converted_for(target)
    frames = list(converted.frames)
    speed = _SPEEDS[effort - 1]
    if len(frames) == 1:
        data = _encode_still(frames[0], converted.bit_depth or 8, quality, speed, lossless=lossless)
        return add_metadata(data, frames[0].icc_profile, raster.exif, raster.xmp)
    if lossless:
        message = "An animation cannot be written as lossless AVIF. WebP and PNG can hold it."
        raise InvalidOption(message, reason="unsupported", param="lossless")
    return _pillow.encode(
        frames[0].image,
        "AVIF",
        quality=quality,
        speed=speed,
        icc_profile=frames[0].icc_profile,
        exif=raster.exif,
        xmp=raster.xmp,
        **_pillow.animation_parameters(raster, frames),
    )


def _encode_still(frame: Frame, bits: int, quality: int, speed: int, *, lossless: bool) -> bytes:
    import numpy as np
    from imagecodecs import avif_encode

    pixels = frame.pixels
    samples = pixels.to_bits(bits) if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    if samples.ndim == 2:  # which libavif cannot write without loss
        samples = np.repeat(samples[..., None], 3, axis=2)
    encoded = avif_encode(
        samples,
        _LOSSLESS if lossless else quality,
        speed=speed,
        bitspersample=bits if isinstance(pixels, DeepPixels) else 8,
        pixelformat="yuv444" if lossless else "yuv420",
        primaries=_UNSPECIFIED if frame.icc_profile else _BT709,
        transfer=_UNSPECIFIED if frame.icc_profile else _SRGB,
        matrix=_IDENTITY if lossless else _BT601,
        numthreads=1,  # jobs share the cores
    )
    return bytes(encoded)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
