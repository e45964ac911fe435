"""TIFF with one or several pages: 8 bits per sample through Pillow, more through tifffile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from warnings import warn

from PIL import Image, ImageSequence, TiffImagePlugin
from pydantic import Field

from engine import (
    MAX_FRAMES,
    RASTER,
    AnyConversion,
    Content,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    check_size,
    color,
    conversion,
    hookimpl,
)
from engine.option_types import Effort, Pages, Quality
from plugins import _exif, _pillow, _tiff_tags

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _sniff(content: Content) -> int:
    """0 for camera RAW files: of those without a plugin, only the thumbnail could be read."""
    return 0 if _tiff_tags.holds_sensor_data(_tiff_tags.read_directories(content)) else 4


TIFF = FileFormat(
    "tiff",
    media_type="image/tiff",
    extensions=("tiff", "tif"),
    sniff=any_of(*(Signature((0, magic), then=_sniff) for magic in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"))),
    paged=True,
    is_complete=_tiff_tags.is_complete,
)

_MODULES = ("plugins._tifffile", "engine.mupdf")
_BITS_PER_SAMPLE, _SUBFILE = 258, 254
_BYTE, _ASCII, _LONG = 1, 2, 4
_PLACEHOLDER = 0xFEEDF00D
_REDUCED = 1  # subfile type: a smaller version of another page
_MODES = {0: "L", 1: "L", 2: "RGB", 5: "CMYK"}
_JPEG_QUALITY, _EFFORT = 90, 5
_LEVELS = (1, 1, 2, 3, 4, 6, 7, 9, 10)  # of libdeflate by effort; 4 takes the time of LZW
Compression: TypeAlias = Annotated[
    Literal["none", "lzw", "deflate", "jpeg"],
    Field(description="Compression of TIFF; `jpeg` is lossy, with 8 bits per sample and without transparency."),
]
_PHOTOMETRIC_NAMES = {
    "1": "minisblack",
    "P": "palette",
    "L": "minisblack",
    "LA": "minisblack",
    "RGB": "rgb",
    "RGBA": "rgb",
    "CMYK": "separated",
}


@conversion(TIFF, RASTER, modules=_MODULES)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    try:
        image = _pillow.open_image(data, "TIFF")
    except (OSError, TypeError, SyntaxError):
        return _decode_with_tifffile(data, pages)
    sizes, deep = _pages(image)
    order = _pillow.select(list(sizes), pages)
    raster = _pillow.to_raster(image, order, sizes=[sizes[index] for index in order])
    bare = raster.bare and getattr(image, "n_frames", 1) == 1  # without thumbnails
    return replace(raster, deep_frames=_decode_deep(data, order) if deep else None, bare=bare)


def _pages(image: Image.Image) -> tuple[dict[int, Size], bool]:
    """The sizes of the pages by index, without thumbnails, and whether a page has more than 8 bits per sample.

    Stops one page after the limit.
    """
    pages: dict[int, Size] = {}
    deep = False
    # Counting all pages first takes seconds for thousands of pages.
    for index, page in enumerate(ImageSequence.Iterator(image)):
        tags = getattr(page, "tag_v2", {})
        deep = deep or max(tags.get(_BITS_PER_SAMPLE, (1,))) > 8
        if not int(tags.get(_SUBFILE, 0)) & _REDUCED:
            pages[index] = page.size
        if len(pages) > MAX_FRAMES:
            break
    image.seek(next(iter(pages), 0))
    return pages or {0: image.size}, deep


def _decode_with_tifffile(data: bytes, selected: str | None) -> Raster:
    """Decodes files that Pillow cannot read, such as floating-point colour."""
    from plugins import _tifffile

    with _tifffile.open_tiff(BytesIO(data), "r") as file:
        order = _pillow.select(list(range(min(file.properties(index=...).n_images, MAX_FRAMES + 1))), selected)
    frames = (replace(frame, pixels=frame.image) for frame in _decode_deep(data, order))
    return Raster(frames, count=len(order), deep_frames=_decode_deep(data, order))


def _decode_deep(data: bytes, order: list[int]) -> Iterator[Frame]:
    from plugins import _tifffile

    with _tifffile.open_tiff(BytesIO(data), "r") as file:
        for page in order:
            tags = file.metadata(index=..., page=page)
            check_size(tags["ImageWidth"], tags["ImageLength"])
            pixels = _to_deep_pixels(file.read(index=..., page=page), tags)
            yield Frame(pixels, tags.get("InterColorProfile"))


def _to_deep_pixels(array: NDArray[Any], tags: dict[str, Any]) -> DeepPixels:
    import numpy as np

    photometric = int(tags["PhotometricInterpretation"])
    mode = _MODES[photometric]
    if array.ndim == 3 and int(tags.get("PlanarConfiguration", 1)) == 2:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3:
        mode += "A" if array.shape[2] > len(mode) and mode != "CMYK" else ""
        array = array[..., : len(mode)] if len(mode) > 1 else array[..., 0]
    bits = int(np.max(tags["BitsPerSample"]))
    array = array if array.dtype.kind == "u" and bits <= 16 else color.to_16_bits(array)
    if photometric == 0:
        array = (1 << min(bits, 16)) - 1 - array
    array = _pillow.apply_orientation(array, int(tags.get("Orientation", 1)))
    return DeepPixels.from_bits(array, min(bits, 16), mode)


# Few readers support LA with 16 bits.
_CAPABILITIES = TargetCapabilities(
    ("1", "P", "L", "LA", "RGB", "RGBA", "CMYK"), deep_modes=("L", "RGB", "RGBA", "CMYK"), icc=True, pages=True
)
_JPEG_CAPABILITIES = TargetCapabilities(("L", "RGB"), icc=True, pages=True)


@conversion(RASTER, TIFF, cost=2, modules=_MODULES)
def encode(
    raster: Raster, *, compression: Compression = "deflate", quality: Quality = _JPEG_QUALITY, effort: Effort = _EFFORT
) -> bytes:
    """`quality` applies to JPEG compression, `effort` to deflate."""
    from plugins import _tifffile

    if compression != "jpeg" and quality != _JPEG_QUALITY:
        message = "quality has an effect only with the compression jpeg."
        warn(FidelityWarning("quality_ignored", message), stacklevel=2)
    if compression != "deflate" and effort != _EFFORT:
        message = "effort has an effect only with the compression deflate."
        warn(FidelityWarning("option_ignored", message), stacklevel=2)
    converted = raster.converted_for(_JPEG_CAPABILITIES if compression == "jpeg" else _CAPABILITIES)
    file = BytesIO()
    tags = _exif.parse(raster.exif)
    with _tifffile.open_tiff(file, "w") as pages:
        for number, frame in enumerate(converted.frames):
            pages.write(
                **_page_parameters(frame.pixels),
                **_compression_parameters(frame.pixels, compression, quality, effort),
                iccprofile=frame.icc_profile,
                resolution=raster.dpi,
                resolutionunit="inch" if raster.dpi else None,
                extratags=() if number else list(_extra_tags(tags, raster.xmp)),
                metadata=None,
                software=False,
            )
    return _append_directories(file.getvalue(), tags)


def _compression_parameters(
    pixels: Image.Image | DeepPixels, compression: Compression, quality: int, effort: int
) -> dict[str, Any]:
    """The parameters of tifffile for a compression."""
    if compression == "jpeg":
        return {"compression": "jpeg", "compressionargs": {"level": quality}}
    if compression == "none":
        return {}
    predictor = {"predictor": pixels.mode not in ("1", "P")}
    if compression == "lzw":
        return {"compression": "lzw", **predictor}
    return {"compression": "zlib", "compressionargs": {"level": _LEVELS[effort - 1]}, **predictor}


def _page_parameters(pixels: Image.Image | DeepPixels) -> dict[str, Any]:
    """The parameters of tifffile for the pixels of a page."""
    import numpy as np

    mode = pixels.mode
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    parameters: dict[str, Any] = {"ndimage": array, "photometric": _PHOTOMETRIC_NAMES[mode]}
    if isinstance(pixels, Image.Image) and mode == "P":
        palette = np.zeros((256, 3), np.uint16)
        colours = np.asarray(pixels.getpalette(), np.uint16).reshape(-1, 3) * 257
        palette[: len(colours)] = colours
        return {**parameters, "colormap": palette.T}
    if mode in ("LA", "RGBA"):
        parameters["extrasamples"] = ["unassalpha"]
    return {**parameters, "planarconfig": "contig"} if array.ndim == 3 else parameters


def _extra_tags(tags: Image.Exif, xmp: bytes | None) -> Iterator[tuple[int, int, int, Any, bool]]:
    """Text tags, XMP, and placeholders for the offsets of the EXIF directories."""
    for tag, value in tags.items():
        if tag in _exif.DESCRIPTIVE and isinstance(value, str):
            yield tag, _ASCII, 0, value.encode(), True
    for pointer in _exif.DIRECTORIES:
        if tags.get_ifd(pointer):
            yield pointer - 1, _LONG, 1, _PLACEHOLDER, True
    if xmp:
        yield _exif.XMP, _BYTE, len(xmp), xmp, True


def _append_directories(data: bytes, tags: Image.Exif) -> bytes:
    """Appends the EXIF directories and fills in their offsets."""
    for pointer in _exif.DIRECTORIES:
        # tifffile cannot write pointer tags. The preceding tag number is replaced here; the order is unchanged.
        entry = struct.pack("<HHII", pointer - 1, _LONG, 1, _PLACEHOLDER)
        if entry in data:
            data += b"\0" * (len(data) % 2)
            directory = TiffImagePlugin.ImageFileDirectory_v2(prefix=b"II")
            for tag, value in tags.get_ifd(pointer).items():
                directory[tag] = value
            final = struct.pack("<HHII", pointer, _LONG, 1, len(data))
            data = data.replace(entry, final, 1) + directory.tobytes(len(data))
    return data


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
