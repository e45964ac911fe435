"""JPEG 2000: JP2 files (also JPX), their codestreams, and JPH files with high throughput (HTJ2K).

OpenJPEG decodes all of them and encodes the first two, OpenJPH encodes JPH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    Content,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    ImageSource,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    color,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Lossless, Quality
from plugins._boxes import jp2
from plugins._pixels import pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

# Offsets of the brand, and of the end of those that are searched.
_BRAND = 20
_BRANDS_END = 64
_JPH = b"jph "
_JP2 = b"jp2 "
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "CMYK"}
_QUALITY = 80
# dB at quality 0, and per step.
_LOWEST_PSNR = 24
_PSNR_STEP = 0.2
_OPENJPH_PSNR = 5  # dB of a photo that is quantized with steps of its whole range


def _brand(content: Content) -> int:
    """The length of a compatible brand, 0 if there is none of an image of JPEG 2000."""
    return 16 if _brands(content) & {_JP2, b"jpx "} and not _is_jph(content) else 0


def _brands(content: Content) -> set[bytes]:
    end = min(12 + int.from_bytes(content[12:16]), _BRANDS_END)
    return {content[offset : offset + 4] for offset in (_BRAND, *range(_BRAND + 8, end, 4))}


def _is_jph(content: Content) -> int:
    return 20 if _JPH in _brands(content) else 0


def _format(name: str, media_type: str, extensions: tuple[str, ...], sniff: Signature) -> FileFormat:
    return FileFormat(
        name,
        media_type=media_type,
        extensions=extensions,
        sniff=sniff,
        is_complete=jp2.is_complete,
        lossy=True,
        bytes_per_pixel=0.05,
    )


_TYPE = (16, b"ftyp")
JP2 = _format("jp2", "image/jp2", ("jp2", "jpx", "jpf"), Signature((0, jp2.SIGNATURE), _TYPE, then=_brand))
JPH = _format("jph", "image/jph", ("jph",), Signature((0, jp2.SIGNATURE), _TYPE, then=_is_jph))
J2K = _format("j2k", "image/j2c", ("j2k", "j2c", "jpc", "jhc"), Signature((0, jp2.CODESTREAM)))

MODULES = ("imagecodecs._jpeg2k", "imagecodecs._htj2k", "PIL.Jpeg2KImagePlugin")


def decode(data: bytes) -> Raster:
    header = jp2.read_header(data)
    mode = mode_of(header)
    is_reduced = header.subsampled or _has_transparent_inks(header)
    bits = 8 if is_reduced else max(header.depths[index].bits for index in _color_channels(header))
    raster = Raster(
        _frames(data, header, deep=False),
        deep_frames=_frames(data, header, deep=True) if bits > 8 else None,
        source=ImageSource(
            lossy=not header.reversible,
            bit_depth=min(bits, 16) if bits > 8 or mode == "L" else 16,
        ),
        sizes=[header.size[::-1] if jp2.read_orientation(data) >= jp2.EXCHANGED else header.size],
        sample=pillow.sample(mode, header.profile),
    )
    if bits > 16:
        color.warn_of_depth(16)
    if count := len(header.depths) - len(_color_channels(header)) - (header.opacity is not None):
        FidelityWarning.issue("layers_dropped", f"Channels besides the colors were dropped: {count} without a meaning.")
    return raster if data.startswith(jp2.CODESTREAM) else jp2.with_metadata(raster, data)


def _color_channels(header: jp2.Header) -> list[int]:
    """The indexes of the channels with the colors of the mode."""
    others = [index for index in range(len(header.depths)) if index != header.opacity]
    return others[: len(_colors(header))]


def _has_transparent_inks(header: jp2.Header) -> bool:
    """Whether the image is CMYK with transparency, which becomes sRGB, because no raster has both."""
    return header.opacity is not None and _colors(header) == "CMYK"


def mode_of(header: jp2.Header) -> str:
    """The mode of the pixels."""
    colors = "RGB" if _has_transparent_inks(header) else _colors(header)
    return colors if header.opacity is None else f"{colors}A"


def _colors(header: jp2.Header) -> str:
    """The mode of the colors, without transparency."""
    channels = len(header.depths) - (header.opacity is not None)
    mode = _MODES[min(channels, 4)]
    if channels == 4 and header.color_space not in (jp2.CMYK, None):
        mode = "RGB"  # and a channel without meaning
    return "L" if mode == "LA" else mode


def _frames(data: bytes, header: jp2.Header, *, deep: bool) -> Iterator[Frame]:
    if header.subsampled:  # imagecodecs does not scale channels
        image = pillow.open_image(data, "JPEG2000")
        turned = pillow.apply_orientation(np.asarray(color.standard_mode(image)), jp2.read_orientation(data))
        yield Frame(Image.fromarray(turned), header.profile)
        return
    frame = Frame(_read(data, header), None if _has_transparent_inks(header) else header.profile)
    yield frame if deep else replace(frame, pixels=frame.image)


def _read(data: bytes, header: jp2.Header) -> Image.Image | DeepPixels:
    array = imagecodecs.jpeg2k_decode(data, numthreads=1)
    array = array if array.ndim == 3 else array[..., None]
    if array.shape != (*header.size[::-1], len(header.depths)):
        raise CorruptInput("The codestream differs from its header.")
    mode = mode_of(header)
    order = _color_channels(header)
    is_deep = max(header.depths[index].bits for index in order) > 8
    maximum = 65535 if is_deep else 255
    if header.opacity is not None:
        order.append(header.opacity)
    samples = np.empty((*array.shape[:2], len(order)), np.uint16 if is_deep else np.uint8)
    for band, index in enumerate(order):
        samples[..., band] = _scaled(array[..., index], header.depths[index], maximum)
    if header.premultiplied:
        alpha = np.maximum(samples[..., -1:], 1).astype(np.float32)
        samples[..., :-1] = np.minimum(samples[..., :-1] * np.float32(maximum) / alpha + 0.5, maximum)
    samples = pillow.apply_orientation(samples[..., 0] if mode == "L" else samples, jp2.read_orientation(data))
    if _has_transparent_inks(header):
        return pillow.transparent_inks(samples, maximum, header.profile)
    return DeepPixels(samples, mode) if is_deep else Image.fromarray(samples, mode)


def _scaled(samples: NDArray[Any], depth: jp2.Depth, maximum: int) -> NDArray[np.uint16]:
    """Samples of one channel from their own depth to 0 to `maximum`."""
    bits = min(depth.bits, 16)
    if depth.signed:
        samples = samples.astype(np.int64) + (1 << (depth.bits - 1))
    if depth.bits > bits:
        samples = samples.astype(np.int64) >> (depth.bits - bits)
    return color.scale(samples, (1 << bits) - 1, maximum)


_CHANNELS = ("L", "LA", "RGB", "RGBA")
_METADATA = frozenset({"exif", "xmp", "iptc", "resolution"})
# Readers know the order of channels in a codestream, but not CMYK.
_J2K_HOLDS = TargetCapabilities(_CHANNELS, deep_modes=_CHANNELS, deep_bits=(10, 12, 16), encoding=True)
_JPH_HOLDS = TargetCapabilities(
    (*_CHANNELS, "CMYK"), deep_modes=(*_CHANNELS, "CMYK"), icc=True, encoding=True, metadata=_METADATA
)
_JP2_HOLDS = replace(_JPH_HOLDS, deep_bits=(10, 12, 16))


def encode_j2k(raster: Raster, *, quality: Quality = _QUALITY, lossless: Lossless = False) -> bytes:
    frame = raster.first_frame()
    return _encode_with_openjpeg(frame, raster.bit_depth or 8, quality, lossless=lossless)


def encode_jp2(raster: Raster, *, quality: Quality = _QUALITY, lossless: Lossless = False) -> bytes:
    frame = raster.first_frame()
    codestream = _encode_with_openjpeg(frame, raster.bit_depth or 8, quality, lossless=lossless)
    return _in_boxes(codestream, _JP2, raster, frame)


def encode_jph(raster: Raster, *, quality: Quality = _QUALITY, lossless: Lossless = False) -> bytes:
    frame = raster.first_frame()
    quantization_step = 10 ** ((_OPENJPH_PSNR - _psnr(quality)) / 20)
    codestream = imagecodecs.htj2k_encode(
        _samples(frame, 16),
        None if lossless else quantization_step,
        reversible=lossless,
        planar=False,
        rgb=frame.pixels.mode.startswith("RGB"),
    )
    return _in_boxes(bytes(codestream), _JPH, raster, frame)


def _encode_with_openjpeg(frame: Frame, bits: int, quality: int, *, lossless: bool) -> bytes:
    codestream = imagecodecs.jpeg2k_encode(
        _samples(frame, bits),
        None if lossless else round(_psnr(quality)),
        codecformat="j2k",
        reversible=lossless,
        planar=False,
        bitspersample=bits if isinstance(frame.pixels, DeepPixels) else 8,
        mct=frame.pixels.mode.startswith("RGB"),
        numthreads=1,  # jobs share the cores
    )
    return bytes(codestream)


def _psnr(quality: int) -> float:
    """The ratio of signal to noise for a quality, in dB."""
    return _LOWEST_PSNR + quality * _PSNR_STEP


def _samples(frame: Frame, bits: int) -> NDArray[Any]:
    pixels = frame.pixels
    return pixels.to_bits(bits) if isinstance(pixels, DeepPixels) else np.asarray(pixels)


def _in_boxes(codestream: bytes, brand: bytes, raster: Raster, frame: Frame) -> bytes:
    bits = (raster.bit_depth or 8) if isinstance(frame.pixels, DeepPixels) else 8
    return jp2.write(codestream, brand, raster, frame.pixels.mode, bits, frame.icc_profile)


@hookimpl
def conversions() -> list[AnyConversion]:
    encoders = ((JP2, encode_jp2, _JP2_HOLDS), (J2K, encode_j2k, _J2K_HOLDS), (JPH, encode_jph, _JPH_HOLDS))
    return [
        *(conversion(source, RASTER, cost=5, memory=40, isolated=True)(decode) for source in (JP2, J2K, JPH)),
        *(
            conversion(RASTER, target, loss=Loss.DETAIL, cost=10, memory=40, capabilities=capabilities)(encode)
            for target, encode, capabilities in encoders
        ),
    ]
