"""TIFF with one or several pages: 8 bits per sample through Pillow, more through tifffile."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from PIL import Image, ImageSequence
from pydantic import Field

from engine import (
    MAX_FRAMES,
    RASTER,
    Content,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    ImageSource,
    OptionValues,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    conversion,
    lazy_imports,
)
from engine.option_types import Effort, Pages, Quality
from plugins._metadata import exif_data, iptc_data
from plugins._pixels import pillow
from plugins._tiff import tiff_directories

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

    from plugins._tiff import codec


def _sniff(content: Content) -> int:
    """0 for camera RAW files: of those without a plugin, only the thumbnail could be read."""
    directories = tiff_directories.sniffed(content)
    only_thumbnails = tiff_directories.camera_make(directories) and tiff_directories.holds_only_thumbnails(directories)
    return 0 if only_thumbnails or tiff_directories.holds_sensor_data(directories) else 4


TIFF = FileFormat(
    "tiff",
    media_type="image/tiff",
    extensions=("tiff", "tif"),
    sniff=any_of(*(Signature((0, magic), then=_sniff) for magic in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"))),
    paged=True,
    is_complete=tiff_directories.is_complete,
)

MODULES = ("plugins._tiff.codec", "PIL.TiffImagePlugin")
_BITS_PER_SAMPLE = 258
_SAMPLE_FORMAT = 339
_UNSIGNED = 1
_INCH = 2
_WEBP = 50001
# Raised by Pillow for pages that it does not know.
_UNREADABLE = (OSError, SyntaxError, TypeError, ValueError, KeyError, IndexError, struct.error)
_BYTE = 1  # type
# PhotometricInterpretation
_GRAYS = (0, 1)
_PALETTE = 3
_INKS = 5
_PLANES = 284
_INTERLEAVED = 1
_COLOR_MAP = 320
_OLD_JPEG = 6
JPEG_QUALITY = 90
EFFORT = 5
"""The defaults of the encoder."""
_LEVELS = (1, 1, 1, 2, 2, 4, 6, 9, 10)  # libdeflate's level by effort; 2 is faster than LZW
# The parts of an image that are compressed to choose the predictor.
_SAMPLE_ROWS = 16
_SAMPLES = 3
Compression: TypeAlias = Annotated[
    Literal["none", "lzw", "deflate", "jpeg"],
    Field(
        description="Compression of TIFF. By default Group 4 for pages of 1 bit, otherwise `deflate`. "
        "`jpeg` is lossy, with 8 bits per sample and without transparency."
    ),
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


@conversion(TIFF, RASTER)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    directories = tiff_directories.read_directories(data, tiff_directories.MAX_PARTS)
    if not tiff_directories.is_whole(data, directories):
        raise CorruptInput("The file is truncated.")
    if tiff_directories.lacks_pages(data, directories):
        FidelityWarning.issue("repaired", "A page of the TIFF lies beyond the end of the file.")
    if count := tiff_directories.unknown_channels(directories):
        FidelityWarning.issue("layers_dropped", f"Channels besides the colors were dropped: {count} without a meaning.")
    block = exif_data.parse_file(data)
    raster = _decode(data, pages)
    if block is None:
        return raster
    iptc = block.bytes_of(exif_data.IPTC) or iptc_data.from_resources(block.bytes_of(exif_data.PHOTOSHOP) or b"")
    xmp = pillow.upright_xmp(block.bytes_of(exif_data.XMP))
    metadata = replace(raster.metadata, exif=exif_data.from_file(block), xmp=xmp, iptc=iptc)
    return replace(raster, metadata=metadata)


def _decode(data: bytes, pages: str | None) -> Raster:
    try:
        image = pillow.open_image(data, "TIFF")
        sizes = _sizes(image)
    except _UNREADABLE:
        sizes = {}
    if not sizes:
        return _decode_with_tifffile(data, pages)
    order = pillow.select(list(sizes), pages)
    raster = pillow.to_raster(image, order, sizes=[sizes[index] for index in order])
    source = replace(
        raster.source,
        turned=getattr(image, "tag_v2", {}).get(exif_data.ORIENTATION, 1) != 1,  # Pillow turns the pixels
        bare=raster.source.bare and getattr(image, "n_frames", 1) == 1,  # without thumbnails
    )
    return replace(raster, source=source)


def _sizes(image: Image.Image) -> dict[int, Size]:
    """The sizes of the pages by index, without thumbnails and masks. Empty if Pillow cannot read a page exactly.

    Stops one page after the limit.
    """
    sizes: dict[int, Size] = {}
    # Counting all pages first takes seconds for thousands of pages.
    for index, page in enumerate(ImageSequence.Iterator(image)):
        if not _is_for_pillow(getattr(page, "tag_v2", {})):
            return {}
        if not int(page.tag_v2.get(tiff_directories.SUBFILE, 0)) & (tiff_directories.REDUCED | tiff_directories.MASK):  # type: ignore[attr-defined]
            sizes[index] = page.size  # Pillow has turned it upright
        if len(sizes) > MAX_FRAMES:
            break
    image.seek(next(iter(sizes), 0))
    return sizes


def _is_for_pillow(tags: Mapping[int, Any]) -> bool:
    """Whether Pillow reads a page exactly, which has no sub-directories."""
    photometric = tags.get(tiff_directories.PHOTOMETRIC)
    extra = tags.get(tiff_directories.EXTRA_SAMPLES, ())
    return (
        max(tags.get(_BITS_PER_SAMPLE, (1,))) <= 8
        and tags.get(tiff_directories.COMPRESSION, 1) != _WEBP  # Pillow's libtiff lacks the codec
        and (tags.get(tiff_directories.COMPRESSION) != _OLD_JPEG or photometric not in _GRAYS)
        and set(tags.get(_SAMPLE_FORMAT, (_UNSIGNED,))) == {_UNSIGNED}
        and not (photometric == _INKS and tags.get(tiff_directories.SAMPLES, 1) > len("CMYK"))
        and not (photometric == _PALETTE and (extra or max(tags.get(_COLOR_MAP, (0,))) <= 255))
        and (not extra or (0 not in extra and tags.get(_PLANES, _INTERLEAVED) == _INTERLEAVED))
        and tiff_directories.SUB_DIRECTORIES not in tags
    )


def _decode_with_tifffile(data: bytes, selected: str | None) -> Raster:
    with codec.open_file(data) as file:
        pages = codec.images(file)
        order = pillow.select(list(range(len(pages))), selected)
        chosen = [pages[index] for index in order]
        bits = max(codec.integer_bits(page) for page in chosen)
        sizes = [codec.upright_size(page) for page in chosen]
        turned = any(codec.orientation(page) > 1 for page in chosen)
        dpi = pillow.plausible_dpi(file.pages.first.get_resolution(unit=_INCH))
    return Raster(
        _frames(data, order, deep=False),
        count=len(order),
        deep_frames=_frames(data, order, deep=True) if bits > 8 else None,
        source=ImageSource(turned=turned, bit_depth=bits),
        dpi=dpi,
        sizes=sizes,
    )


def _frames(data: bytes, order: list[int], *, deep: bool) -> Iterator[Frame]:
    with codec.open_file(data) as file:
        pages = codec.images(file)
        for index in order:
            frame = Frame(codec.read(pages[index]), codec.profile(pages[index]))
            yield frame if deep else replace(frame, pixels=frame.image)
            del frame  # frees its memory before the next one is decoded


_METADATA = frozenset({"exif", "xmp", "iptc", "resolution"})
# Few readers support LA with 16 bits.
_LOSSLESS_HOLDS = TargetCapabilities(
    ("1", "P", "L", "LA", "RGB", "RGBA", "CMYK"),
    deep_modes=("L", "RGB", "RGBA", "CMYK"),
    icc=True,
    pages=True,
    without=frozenset({"max_bytes"}),
    metadata=_METADATA,
)
_JPEG_HOLDS = TargetCapabilities(("L", "RGB", "CMYK"), icc=True, pages=True, metadata=_METADATA)


def _holds(options: OptionValues) -> TargetCapabilities:
    """What a file can store with these options. Warns of those without effect on its compression."""
    compression = options.get("compression")
    if compression != "jpeg" and options.get("quality", JPEG_QUALITY) != JPEG_QUALITY:
        FidelityWarning.issue("quality_ignored", "quality has an effect only with the compression jpeg.")
    if compression not in (None, "deflate") and options.get("effort", EFFORT) != EFFORT:
        FidelityWarning.issue("option_ignored", "effort has an effect only with the compression deflate.")
    return _JPEG_HOLDS if compression == "jpeg" else _LOSSLESS_HOLDS


@conversion(RASTER, TIFF, cost=2, capabilities=_holds)
def encode(
    raster: Raster,
    *,
    compression: Compression | None = None,
    quality: Quality = JPEG_QUALITY,
    effort: Effort = EFFORT,
) -> bytes:
    """`quality` applies to JPEG compression, `effort` to deflate."""
    block = exif_data.parse(raster.metadata.exif)
    with codec.Writer(block.order if block else "<") as writer:
        for frame in raster.frames:
            common: dict[str, Any] = {
                "iccprofile": frame.icc_profile,
                "resolution": frame.dpi or raster.dpi,
                "resolutionunit": "inch" if frame.dpi or raster.dpi else None,
            }
            if compression is None and frame.pixels.mode == "1":
                writer.write_bilevel(frame.image, **common)
            else:
                array, parameters = _page(frame.pixels)
                method = _compression_parameters(array, frame.pixels.mode, compression or "deflate", quality, effort)
                writer.write(array, **parameters, **method, **common)
    return with_tags(writer.getvalue(), raster)


def _compression_parameters(
    array: NDArray[Any], mode: str, compression: str, quality: int, effort: int
) -> dict[str, Any]:
    """The parameters of tifffile for a compression."""
    if compression == "jpeg":
        return {"compression": "jpeg", "compressionargs": {"level": quality}}
    if compression == "none":
        return {}
    predictor = {"predictor": mode not in ("1", "P") and _predictor_helps(array)}
    if compression == "lzw":
        return {"compression": "lzw", **predictor}
    return {"compression": "zlib", "compressionargs": {"level": _LEVELS[effort - 1]}, **predictor}


def _predictor_helps(array: NDArray[Any]) -> bool:
    """Whether differences of neighboring pixels compress better than the pixels: of photos, but not of drawings."""
    starts = np.linspace(0, max(len(array) - _SAMPLE_ROWS, 0), _SAMPLES, dtype=int)
    rows = np.concatenate([array[start : start + _SAMPLE_ROWS] for start in starts])
    compressed = imagecodecs.deflate_encode(rows.tobytes(), 2)
    differences = imagecodecs.deflate_encode(imagecodecs.delta_encode(rows, axis=1).tobytes(), 2)
    return len(differences) < len(compressed)


def _page(pixels: Image.Image | DeepPixels) -> tuple[NDArray[Any], dict[str, Any]]:
    """The samples of a page, and the parameters of tifffile for them."""
    mode = pixels.mode
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    parameters: dict[str, Any] = {"photometric": _PHOTOMETRIC_NAMES[mode]}
    if isinstance(pixels, Image.Image) and mode == "P":
        palette = np.zeros((256, 3), np.uint16)
        colors = np.asarray(pixels.getpalette(), np.uint16).reshape(-1, 3) * 257
        palette[: len(colors)] = colors
        return array, {**parameters, "colormap": palette.T}
    if mode in ("LA", "RGBA"):
        parameters["extrasamples"] = ["unassalpha"]
    return array, ({**parameters, "planarconfig": "contig"} if array.ndim == 3 else parameters)


def with_tags(data: bytes, raster: Raster, additional: Mapping[int, bytes | None] = MappingProxyType({})) -> bytes:
    """A TIFF file whose first directory has more tags: XMP, IPTC, and tags of EXIF that do not describe storage.

    `further` are the contents of other tags, None for those that are left out.
    """
    layout = tiff_directories.read_layout(data)
    block = exif_data.parse(raster.metadata.exif)
    tags = block.directory if block else {}
    directory = {tag: value for tag, value in tags.items() if tag not in exif_data.STRUCTURAL}
    blocks = {exif_data.XMP: raster.metadata.xmp, exif_data.IPTC: raster.metadata.iptc, **additional}
    for tag, content in blocks.items():
        if content:
            directory[tag] = exif_data.Value(_BYTE, len(content), content)
    if layout is None or not directory:
        return data
    entries, following = tiff_directories.read_entries(data, layout.read_offset(data, layout.first), layout)
    for entry in entries:
        field = data[entry.start : entry.start + entry.size]
        if entry.size > layout.offset_size:
            field = struct.pack(f"{layout.order}I", entry.start)
        directory[entry.tag] = exif_data.Value(entry.kind, entry.length, field)
    # The new directory is at the end, after an even number of bytes, so that all values stay where they are.
    end = len(data) + len(data) % 2
    first = struct.pack(f"{layout.order}I", end)
    added = exif_data.write_directory(directory, layout.order, end, following)
    return b"".join([data[: layout.first], first, data[layout.first + len(first) :], bytes(len(data) % 2), added])
