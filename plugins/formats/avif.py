"""AVIF, still and animated."""

from collections.abc import Iterator
from dataclasses import replace

from PIL import Image

from engine import (
    RASTER,
    Brands,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    HdrColors,
    InvalidOption,
    Loss,
    OptionValues,
    Raster,
    TargetCapabilities,
    boxes_are_complete,
    conversion,
    lazy_imports,
)
from engine.option_types import Effort, Hdr, Lossless, Pages, Quality, Subsampling
from plugins._boxes import heif, heif_items
from plugins._color import cicp
from plugins._metadata import exif_data
from plugins._pixels import pillow

with lazy_imports():
    import imagecodecs
    import numpy as np

AVIF = FileFormat(
    "avif",
    media_type="image/avif",
    extensions=("avif", "avifs"),
    sniff=Brands("avif", "avis", item="av01"),
    is_complete=boxes_are_complete,
    lossy=True,
    animated=True,
    bytes_per_pixel=0.05,
)

MODULES = ("PIL.AvifImagePlugin", "imagecodecs._avif")
# Quality.
_LOSSLESS = 100
_GAIN_MAP_QUALITY = 90
_SPEEDS = (9, 9, 8, 7, 6, 5, 4, 4, 3)  # libavif's speed by effort; each step below 6 takes a multiple of the time
_PROFILE_SPACE = slice(16, 20)  # the color space in the header of an ICC profile
_SLOWEST = ((2, 3), (8, 4), (13, 6), (36, 8))  # megapixels, and the lowest speed for images up to that size
_FASTEST = 9
_THREADS = 4  # they use idle cores, and take no more CPU time than one
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


@conversion(AVIF, RASTER, cost=1.5)
def decode(data: bytes, *, pages: Pages | None = None, hdr: Hdr = "keep") -> Raster:
    """Decodes stills with imagecodecs, which has more than 8 bits per sample and takes less time than Pillow."""
    heif.check_size(data)
    data, exif = heif_items.take_exif(heif.repair(heif_items.with_brand(data, b"avif")))
    raster = heif.with_colors(_decode(data, pages), data)
    raster = replace(
        raster,
        metadata=replace(raster.metadata, exif=exif and exif_data.upright(exif)),
        source=replace(raster.source, bare=raster.source.bare and exif is None),
    )
    if hdr == "drop" or raster.animated or raster.hdr:
        return raster
    return replace(raster, gain_map=heif_items.read(data, _first_image, raster.sizes[0]))


def _first_image(data: bytes) -> Image.Image:
    return pillow.decode(data, "AVIF").first_frame().image


def _decode(data: bytes, pages: str | None) -> Raster:
    image = pillow.open_image(data, "AVIF")
    bits = heif.bit_depth(data)
    if getattr(image, "n_frames", 1) > 1:
        if bits > 8:
            FidelityWarning.issue("depth_reduced", "Animations are converted with 8 bits per sample.")
        raster = pillow.decode(data, "AVIF", animated=True, lossy=True, pages=pages)
        return replace(raster, loop_count=heif.loop_count(data))
    raster = pillow.to_raster(image, pillow.select([0], pages), lossy=True)
    aperture = heif.clean_aperture(data, *image.size)
    if aperture:
        size = aperture[2] - aperture[0], aperture[3] - aperture[1]
        raster = replace(raster, sizes=[size[::-1] if exif_data.read_orientation(image) >= 5 else size])
    frames = _decode_still(data, image, bits, aperture)
    if bits == 8:
        return replace(raster, frames=frames)
    reduced = (replace(frame, pixels=frame.image) for frame in _decode_still(data, image, bits, aperture))
    return replace(raster, frames=reduced, deep_frames=frames, source=replace(raster.source, bit_depth=bits))


def _decode_still(data: bytes, header: Image.Image, bits: int, aperture: heif.Rectangle | None) -> Iterator[Frame]:
    profile = header.info.get("icc_profile")
    array = imagecodecs.avif_decode(data, numthreads=1)
    if aperture:
        left, top, right, bottom = aperture
        array = array[top:bottom, left:right]
    array = pillow.apply_orientation(array, exif_data.read_orientation(header))
    if array.ndim == 2 and profile and profile[_PROFILE_SPACE] == b"RGB ":
        array = np.repeat(array[..., None], 3, axis=2)
    mode = _MODES[array.shape[2] if array.ndim == 3 else 1]
    yield Frame(Image.fromarray(array, mode) if bits == 8 else DeepPixels.from_bits(array, bits, mode), profile)


_CAPABILITIES = TargetCapabilities(
    ("RGB", "RGBA"),
    deep_modes=("RGB", "RGBA"),  # libavif writes gray with a loss
    deep_bits=(10, 12),
    icc=True,
    hdr=True,
    gain_map=True,
    animation_modes=("RGB", "RGBA"),
    encoding=True,
    max_side=32_768,
    metadata=frozenset({"exif", "xmp"}),
)


def _holds(options: OptionValues) -> TargetCapabilities:
    """Without loss, colors have the full resolution."""
    return replace(_CAPABILITIES, without=frozenset({"subsampling"})) if options.get("lossless") else _CAPABILITIES


@conversion(RASTER, AVIF, loss=Loss.DETAIL, cost=30, memory=28, capabilities=_holds)
def encode(
    raster: Raster,
    *,
    quality: Quality = 70,
    lossless: Lossless = False,
    effort: Effort = 5,
    subsampling: Subsampling = "4:2:0",
) -> bytes:
    """Writes stills through imagecodecs: more bits per sample, lossless, and in two thirds of the time of Pillow."""
    frames = list(raster.frames)
    pixels = sum(width * height for width, height in (frame.size for frame in frames))
    speed = _speed(effort, pixels * 2 if lossless else pixels)
    if len(frames) == 1:
        sampling = "4:4:4" if lossless else subsampling
        data = _encode_still(frames[0], raster.bit_depth or 8, raster.hdr, quality, speed, sampling, lossless=lossless)
        if raster.gain_map:
            image = Frame(raster.gain_map.frame.image)
            encoded = _encode_still(image, 8, None, _GAIN_MAP_QUALITY, speed, "4:2:0", lossless=False)
            data = heif_items.add(data, raster.gain_map, encoded)
        return heif.add_metadata(data, frames[0].icc_profile, raster.hdr, raster.metadata.exif, raster.metadata.xmp)
    if lossless:
        message = "An animation cannot be written as lossless AVIF. WebP and PNG can hold it."
        raise InvalidOption(message, reason="unsupported", param="lossless")
    data = pillow.encode(
        frames[0].image,
        "AVIF",
        quality=quality,
        speed=speed,
        subsampling=subsampling,
        icc_profile=frames[0].icc_profile,
        exif=exif_data.without_orientation(raster.metadata.exif),  # Pillow would encode the texts again
        xmp=raster.metadata.xmp,
        **pillow.animation_parameters(raster, frames),
    )
    return heif.with_loop_count(data, raster.loop_count)


def _speed(effort: int, pixels: int) -> int:
    """The speed of libavif: larger images are encoded faster, so that they take at most some 10 seconds."""
    lowest = next((speed for megapixels, speed in _SLOWEST if pixels <= megapixels * 1_000_000), _FASTEST)
    return max(_SPEEDS[effort - 1], lowest)


def _encode_still(
    frame: Frame,
    bits: int,
    hdr: HdrColors | None,
    quality: int,
    speed: int,
    subsampling: Subsampling,
    *,
    lossless: bool,
) -> bytes:
    pixels = frame.pixels
    samples = pixels.to_bits(bits) if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    primaries, transfer, matrix = cicp.code_points(hdr, lossless=lossless)
    encoded = imagecodecs.avif_encode(
        samples,
        _LOSSLESS if lossless else quality,
        speed=speed,
        bitspersample=bits if isinstance(pixels, DeepPixels) else 8,
        pixelformat="yuv" + subsampling.replace(":", ""),
        primaries=cicp.UNSPECIFIED if frame.icc_profile else primaries,
        transfer=cicp.UNSPECIFIED if frame.icc_profile else transfer,
        matrix=matrix,
        numthreads=_THREADS,
    )
    return bytes(encoded)
