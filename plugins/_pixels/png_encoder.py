"""Encodes PNG: 8 and 16 bits per sample, filtered by libpng if that helps, stills compressed by libdeflate."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from PIL import Image
from pydantic import Field

from engine import DeepPixels, FidelityWarning, Frame, HdrColors, OptionValues, Raster, TargetCapabilities, lazy_imports
from engine.option_types import Colors, Dither, Effort, Lossy, Progressive, Quality
from plugins._metadata import exif_data
from plugins._pixels import animations, apng, palette_frames, palettes, png_chunks
from plugins._pixels.palettes import ExactPalette
from plugins._pixels.png_chunks import DEFAULT_EFFORT, LEVELS, SIGNATURE, chunk

with lazy_imports():
    import imagecodecs
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODULES = (*png_chunks.MODULES, *palettes.MODULES)
# Of palettes that are made here, which takes longer than compression. Drawings are smaller with 9, photos with 10.
_LEVELS_OF_PALETTES = ((1,), (4,), (6,), (9,), (9, 10), (9, 10), (9, 10), (9, 12), (9, 12))
# Bytes of rows that level 12 compresses in 0.2 s.
_SMALL = 1 << 19
_LEVELS_IF_SMALL = (9, 12)
_MAX_COLORS = palettes.MAX_COLORS
_ENTRY = 3  # bytes of a color in a palette
_INVISIBLE = 97  # the quality of colors that look the same: they differ by half a level
# Adam7: the first column and row of each pass, and the distances of its columns and rows.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_INTERLACE = 20  # offset of the interlace method in the IHDR chunk
_SIZE = 16  # offset of width and height in a file
_HEADER = 33  # bytes of the signature and the IHDR chunk
# In the IHDR chunk.
_COLOR_TYPES: Mapping[str, int] = MappingProxyType({"1": 0, "L": 0, "RGB": 2, "P": 3, "LA": 4, "RGBA": 6})
_XMP = "XML:com.adobe.xmp"
# Values in the chunk cICP.
RGB = 0
_FULL_RANGE = 1
LUMINANCE_UNITS = 10_000  # per cd/m², of the chunks cLLI and mDCV
CAPABILITIES = TargetCapabilities(
    ("1", "L", "LA", "P", "PA", "RGB", "RGBA"),
    deep_modes=("L", "RGB", "LA", "RGBA"),
    icc=True,
    hdr=True,
    animation_modes=("RGBA",),
    metadata=frozenset({"exif", "xmp", "text", "resolution"}),
)
"""What a PNG can store."""
_OF_PALETTE = frozenset({"dither", "quality", "max_bytes"})
Palette: TypeAlias = Annotated[
    bool,
    Field(
        description="Reduces PNG to a palette, for much smaller files; `quality` then decides how many colors it has. "
        "By default, an image whose source has a palette gets one again if that hardly changes its colors."
    ),
]


def capabilities(options: OptionValues) -> TargetCapabilities:
    """What a PNG can store with these options, and which of them have no effect without a palette."""
    if not (options.get("palette") or options.get("colors")):
        return replace(CAPABILITIES, without=_OF_PALETTE)
    return replace(CAPABILITIES, deep_modes=(), hdr=False)


def encode(
    raster: Raster,
    *,
    effort: Effort = DEFAULT_EFFORT,
    progressive: Progressive = False,
    palette: Palette | None = None,
    colors: Colors | None = None,
    dither: Dither | None = None,
    quality: Quality | None = None,
    lossy: Lossy | None = None,
) -> bytes:
    if progressive and raster.count > 1:
        FidelityWarning.issue("option_ignored", "Options without effect on animated PNG: progressive.")
    if palette or colors:
        raster = _with_palette(raster, colors or _MAX_COLORS, dither, quality)
    if effort == DEFAULT_EFFORT and not progressive and (drawn := _drawn_file(raster)):
        return b"".join([drawn[:_HEADER], *_metadata_chunks(raster, None), drawn[_HEADER:]])
    frames = list(raster.frames)
    if len(frames) > 1:
        had_palettes = raster.source.palette and palette is None and not colors
        if had_palettes and any(frame.image.getcolors(_MAX_COLORS) is None for frame in frames):
            frames = _frames_of(_with_palette_again(_joined(frames)), frames)
        metadata = list(_metadata_chunks(raster, frames[0].icc_profile))
        return apng.encode(
            frames, animations.plays(raster, apng.MAX_PLAYS), metadata, LEVELS[effort - 1], palette_frames.stray(lossy)
        )
    if lossy:
        FidelityWarning.issue("option_ignored", "Options without effect on a PNG that is not animated: lossy.")
    pixels = frames[0].pixels
    if isinstance(pixels, Image.Image):
        if palette is None and raster.source.palette:
            pixels = _with_palette_again(pixels)
        pixels = _reduced(pixels, has_profile=frames[0].icc_profile is not None)
    levels: Sequence[int] = (LEVELS[effort - 1],)
    if isinstance(pixels, Image.Image) and pixels.mode == "P":
        levels = _LEVELS_OF_PALETTES[effort - 1]
        if effort <= DEFAULT_EFFORT and not (palette or colors):  # There was no search for colors that takes longer.
            levels = levels[:1]
    metadata = list(_metadata_chunks(raster, frames[0].icc_profile))
    bits = _bits(pixels)
    return _encode_samples(pixels, bits, levels, metadata, interlaced=progressive)


def _with_palette(raster: Raster, colors: int, dither: float | None, quality: int | None) -> Raster:
    """The raster whose frames have a palette, the same one; by default, only a still is dithered."""
    frames = list(raster.frames)
    if dither is None:
        dither = 0 if len(frames) > 1 else 1
    joined = palettes.with_palette(_joined(frames), colors, dither, quality)
    return replace(raster, frames=_frames_of(joined, frames), origin=None)


def _joined(frames: Sequence[Frame]) -> Image.Image:
    """All frames, one below the other."""
    images = [frame.image for frame in frames]
    if len(images) == 1:
        return images[0]
    width, height = images[0].size
    joined = Image.new("RGBA", (width, height * len(images)))
    for index, image in enumerate(images):
        joined.paste(image, (0, index * height))
    return joined


def _frames_of(joined: Image.Image, frames: Sequence[Frame]) -> list[Frame]:
    """The frames with pixels of the joined image."""
    width, height = frames[0].size
    boxes = [(0, index * height, width, (index + 1) * height) for index in range(len(frames))]
    return [replace(frame, pixels=joined.crop(box)) for frame, box in zip(frames, boxes, strict=True)]


def _with_palette_again(image: Image.Image) -> Image.Image:
    """The image with a palette if its colors, which are too many for one, hardly change."""
    if image.getcolors(_MAX_COLORS):
        return image
    try:
        reduced = palettes.with_palette(image, _MAX_COLORS, 0, None, least_quality=_INVISIBLE)
    except RuntimeError:
        return image
    message = "The image has 256 colors, in a palette like its source; palette=false keeps all colors."
    FidelityWarning.issue("colors_reduced", message)
    return reduced


def _drawn_file(raster: Raster) -> bytes | None:
    """The PNG in which a renderer returned all pixels of the raster; None if there is no such file."""
    origin = raster.origin
    if origin is None or not origin.data.startswith(SIGNATURE) or not origin.exact or origin.orientation != 1:
        return None
    is_whole = origin.box == (0, 0, *struct.unpack_from(">II", origin.data, _SIZE))
    return origin.data if is_whole and raster.request.background is None and raster.bit_depth == 8 else None


def _reduced(image: Image.Image, *, has_profile: bool) -> Image.Image:
    """The same pixels in fewer bytes, where possible: without alpha, in gray or with a palette.

    An image with a profile does not become gray, because its profile is one of colors.
    """
    if image.mode in ("LA", "RGBA") and image.getextrema()[-1] == (255, 255):
        image = image.convert(image.mode.removesuffix("A"))
    if image.mode not in ("RGB", "RGBA"):
        return image
    found = image.getcolors(_MAX_COLORS)
    colors = None if found is None else np.array([color for _, color in found], np.uint8)
    if image.mode == "RGB" and not has_profile and _is_gray(np.asarray(image) if colors is None else colors):
        return image.convert("L")
    if colors is None:
        return image
    indexed = _indexed(image, colors)
    level = LEVELS[DEFAULT_EFFORT - 1]
    sizes = [min(png_chunks.sizes_of_bands(np.asarray(one), level)) for one in (indexed, image)]
    return indexed if sizes[0] + len(colors) * _ENTRY < sizes[1] else image


def _is_gray(samples: NDArray[np.uint8]) -> bool:
    """Whether red, green and blue are the same everywhere."""
    for part in (samples[:1], samples):  # most images show their colors in a row
        if (part[..., 0] != part[..., 1]).any() or (part[..., 1] != part[..., 2]).any():
            return False
    return True


def _indexed(image: Image.Image, colors: NDArray[np.uint8]) -> Image.Image:
    """The image with a palette of these colors, which are all that it has: red, green, blue and possibly alpha."""
    entries = np.pad(colors, ((0, 0), (0, 4 - colors.shape[1])), constant_values=255)
    entries = entries[np.argsort(entries[:, 3], kind="stable")]  # Opaque colors last: tRNS ends before them.
    palette = ExactPalette(entries.view(np.uint32).ravel(), _MAX_COLORS)
    return palettes.with_entries(palette.indexes(np.asarray(image.convert("RGBA")).view(np.uint32)[..., 0]), entries)


def _bits(pixels: Image.Image | DeepPixels) -> int:
    """Bits per sample: as few as a palette or the levels of gray need."""
    if isinstance(pixels, DeepPixels):
        return 16
    if pixels.mode == "1":
        return 1
    if pixels.mode == "P":
        return next(bits for bits in (1, 2, 4, 8) if _palette_size(pixels) <= 1 << bits)
    if pixels.mode == "L":
        levels = [level for level, count in enumerate(pixels.histogram()) if count]
        return next(bits for bits in (1, 2, 4, 8) if all(level % (255 // ((1 << bits) - 1)) == 0 for level in levels))
    return 8


def _encode_samples(
    pixels: Image.Image | DeepPixels, bits: int, levels: Sequence[int], metadata: list[bytes], *, interlaced: bool
) -> bytes:
    """A still, the smallest of some levels, through libpng only if its filters make the file smaller."""
    samples: NDArray[Any] = np.asarray(pixels) if isinstance(pixels, Image.Image) else pixels.array
    header = (*pixels.size, bits, _COLOR_TYPES[pixels.mode], 0, 0, int(interlaced))
    filtered = bits >= 8 and png_chunks.filters_help(samples, levels[0])
    if isinstance(pixels, Image.Image) and pixels.mode == "P":
        metadata += _palette_chunks(pixels)
        samples = samples << (8 - bits)
    elif pixels.mode == "1":
        samples = samples.astype(np.uint8) * np.uint8(255)
    passes = _passes(samples) if interlaced else [samples]
    parts = [png_chunks.rows(part if bits >= 8 else png_chunks.pack(part, bits), filtered=filtered) for part in passes]
    rows = bytearray().join(parts) if interlaced else parts.pop()
    del samples, passes, pixels  # free memory before compression
    chunks = chunk(b"IHDR", struct.pack(">IIBBBBB", *header)), *metadata
    if len(levels) > 1 and len(rows) <= _SMALL:
        levels = _LEVELS_IF_SMALL
    compressed = min((bytes(imagecodecs.deflate_encode(rows, level)) for level in levels), key=len)
    return b"".join([SIGNATURE, *chunks, chunk(b"IDAT", compressed), chunk(b"IEND", b"")])


def _palette_size(image: Image.Image) -> int:
    """The number of colors up to the last one that is used."""
    return int(np.asarray(image).max()) + 1


def _palette_chunks(image: Image.Image) -> list[bytes]:
    """The colors that an image with a palette uses, and their transparency, if there is any."""
    count = _palette_size(image)
    colors = bytes(image.getpalette("RGBA") or ()).ljust(4 * count, b"\0")[: 4 * count]
    transparency = image.info.get("transparency", colors[3::4])
    if isinstance(transparency, int):
        transparency = bytes(0 if index == transparency else 255 for index in range(count))
    opaque = transparency[:count].rstrip(b"\xff")
    rgb = b"".join(colors[start : start + 3] for start in range(0, len(colors), 4))
    return [chunk(b"PLTE", rgb), *([chunk(b"tRNS", opaque)] if opaque else [])]


def _metadata_chunks(raster: Raster, profile: bytes | None) -> Iterator[bytes]:
    """The metadata as chunks to insert before the pixels."""
    yield from _hdr_chunks(raster.hdr)
    if profile:
        yield chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(profile))
    if raster.dpi:
        yield chunk(b"pHYs", struct.pack(">IIB", *(round(value / 0.0254) for value in raster.dpi), 1))
    metadata = raster.metadata
    if metadata.exif:
        yield chunk(b"eXIf", metadata.exif.removeprefix(exif_data.PREFIX))
    for keyword, text in _texts(raster):
        yield chunk(b"iTXt", keyword.encode("latin-1", "replace")[:79] + b"\0\0\0\0\0" + text.encode())


def _texts(raster: Raster) -> Iterator[tuple[str, str]]:
    """Keywords and texts of the raster, and XMP."""
    yield from raster.metadata.text
    if raster.metadata.xmp:
        yield _XMP, raster.metadata.xmp.decode("utf-8", "replace")


def _hdr_chunks(hdr: HdrColors | None) -> Iterator[bytes]:
    """The chunks that describe HDR; none for other images."""
    if hdr is not None:
        yield chunk(b"cICP", bytes((hdr.primaries, hdr.transfer, RGB, _FULL_RANGE)))
        if hdr.mastering_display:
            yield chunk(b"mDCV", hdr.mastering_display)
        if hdr.light_levels:
            yield chunk(b"cLLI", struct.pack(">2I", *(round(level * LUMINANCE_UNITS) for level in hdr.light_levels)))


def _passes(samples: NDArray[Any]) -> list[NDArray[Any]]:
    """The images of the passes of Adam7 that have pixels."""
    passes = (samples[y::down, x::across] for x, y, across, down in _PASSES)
    return [part for part in passes if part.size]
