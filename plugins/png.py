"""PNG, still and animated: 8 bits per sample through Pillow, 16 through libpng. libdeflate compresses stills."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from warnings import warn

from PIL import Image, PngImagePlugin

from engine import (
    MAX_FRAMES,
    RASTER,
    AnyConversion,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    ends_with,
    hookimpl,
)
from engine.option_types import Effort, Pages, Progressive
from plugins import _cicp, _exif, _pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

PNG = FileFormat(
    "png",
    media_type="image/png",
    extensions=("png", "apng"),
    sniff=Signature((0, _SIGNATURE)),
    animated=True,
    is_complete=ends_with(b"IEND\xaeB`\x82"),
)

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
# Levels of libdeflate by effort. 6 has the size of zlib's default in a third of the time; 11 and 12 save nothing.
_LEVELS = (1, 2, 3, 4, 6, 7, 8, 9, 10)
_MAX_ZLIB_LEVEL = 9
_BANDS, _BAND = 8, 16  # of rows that are compressed to decide on filters: their number, and the rows of each
# Adam7: the first column and row of each pass, and the distances of its columns and rows.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_INTERLACE = 20  # offset of the interlace method in the IHDR chunk
_DEPTH = 24  # offset of the bits per sample
_HEADER_END = 33  # offset after signature and IHDR
_METADATA_CHUNKS = frozenset({b"eXIf", b"iTXt", b"tEXt", b"zTXt"})
# Chunks that describe colors, with the size of their content.
_COLOR_CHUNKS: Mapping[bytes, int | None] = MappingProxyType(
    {b"cICP": 4, b"iCCP": None, b"sRGB": 1, b"gAMA": 4, b"cHRM": 32, b"mDCV": 24, b"cLLI": 8}
)
_COLOR_TYPES: Mapping[str, int] = MappingProxyType({"L": 0, "RGB": 2, "LA": 4, "RGBA": 6})  # in the IHDR chunk
_RGB = 0  # the matrix of cICP
_FIXED_POINT, _LUMINANCE_UNITS = 100_000, 10_000  # of gAMA and cHRM; of cLLI and mDCV, per cd/m²
_SRGB_GAMMA, _MIN_GAMMA, _TOLERANCE = 0.45455, 0.1, 0.005
_XMP = "XML:com.adobe.xmp"


def _is_deep(content: bytes) -> bool:
    return content[_DEPTH : _DEPTH + 1] == b"\x10"


@conversion(PNG, RASTER, cost=2)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    image = _pillow.open_image(data, "PNG")
    kinds = [kind for kind, _ in _read_chunks(memoryview(data))]
    # Pillow reads metadata after the pixels only by decoding them.
    if b"IDAT" in kinds and not _METADATA_CHUNKS.isdisjoint(kinds[kinds.index(b"IDAT") :]):
        image.load()
    # The header may contain any number.
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES + 2)
    # The default image, for readers without animation, is not a frame.
    has_default = count > 1 and image.info.get("default_image", False)
    frames = list(range(1 if has_default else 0, count))
    order = _pillow.select(frames, pages)
    raster = _pillow.to_raster(image, order, animated=len(order) > 1)
    if _is_deep(data) and len(frames) == 1:
        raster = replace(raster, deep_frames=_decode_deep(data))
    return _with_colors(raster, data)


def _with_colors(raster: Raster, data: bytes) -> Raster:
    """The raster with the colors of its chunks: cICP has precedence over iCCP, sRGB, and gAMA with cHRM, in this order.

    HDR becomes sRGB, other colors a profile.
    """
    chunks = _color_chunks(data)
    primaries, transfer, matrix, _ = chunks.get(b"cICP", bytes(4))
    if matrix == _RGB and _cicp.are_known(primaries, transfer):
        return _cicp.with_colors(raster, primaries, transfer, _peak(chunks))
    measured = None if chunks.keys() & {b"iCCP", b"sRGB"} else _read_gamma(chunks)
    return raster if measured is None else _cicp.with_profile(raster, measured)


def _color_chunks(data: bytes) -> dict[bytes, bytes]:
    """The content of the chunks that describe colors, by type, if it has the right size."""
    found: dict[bytes, bytes] = {}
    for kind, chunk in _read_chunks(memoryview(data)):
        if kind == b"IDAT":
            break
        if kind in _COLOR_CHUNKS and _COLOR_CHUNKS[kind] in (None, len(chunk) - 12):
            found.setdefault(kind, bytes(chunk[8:-4]))
    return found


def _read_gamma(chunks: Mapping[bytes, bytes]) -> tuple[_cicp.Primaries, _cicp.Curve] | None:
    """The colors that gAMA and cHRM describe. None if they are invalid or those of sRGB."""
    encoding = int.from_bytes(chunks.get(b"gAMA", b"")) / _FIXED_POINT
    if not _MIN_GAMMA <= encoding <= 1 / _MIN_GAMMA:
        return None
    primaries = _cicp.SRGB
    if b"cHRM" in chunks:
        primaries = tuple(value / _FIXED_POINT for value in struct.unpack(">8I", chunks[b"cHRM"]))
        if not _cicp.are_valid(primaries):
            return None
    values = zip((encoding, *primaries), (_SRGB_GAMMA, *_cicp.SRGB), strict=True)
    if all(abs(value - expected) < _TOLERANCE for value, expected in values):
        return None
    return primaries, _cicp.gamma(1 / encoding)


def _peak(chunks: Mapping[bytes, bytes]) -> float:
    """The brightness of the brightest color in cd/m²: of the content, or of the screen on which it was made."""
    content = int.from_bytes(chunks.get(b"cLLI", b"")[:4])
    screen = int.from_bytes(chunks.get(b"mDCV", b"")[16:20])
    return (content or screen) / _LUMINANCE_UNITS or _cicp.DEFAULT_PEAK


def _decode_deep(data: bytes) -> Iterator[Frame]:
    from imagecodecs import png_decode

    header = _pillow.open_image(data, "PNG")
    array = png_decode(data)
    array = _pillow.apply_orientation(array, header.getexif().get(_exif.ORIENTATION, 1))
    bands = array.shape[2] if array.ndim == 3 else 1
    yield Frame(DeepPixels(array, _MODES[bands]), header.info.get("icc_profile"))


@conversion(RASTER, PNG, cost=5, memory=20, modules=("imagecodecs._deflate", "imagecodecs._png"))
def encode(raster: Raster, *, effort: Effort = 5, progressive: Progressive = False) -> bytes:
    level = _LEVELS[effort - 1]
    modes = ("RGBA",) if raster.animated else ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
    deep = () if raster.animated else ("L", "LA", "RGB", "RGBA")
    frames = list(raster.converted_for(TargetCapabilities(modes, deep_modes=deep, icc=True, animation=True)).frames)
    pixels = frames[0].pixels
    if len(frames) == 1 and pixels.mode in _COLOR_TYPES:
        return _encode_samples(pixels, level, list(_metadata_chunks(raster, frames[0])), interlaced=progressive)
    image = frames[0].image
    if progressive and len(frames) > 1:
        warn(FidelityWarning("option_ignored", "progressive has no effect on animated PNG."), stacklevel=2)
    info = PngImagePlugin.PngInfo()
    if raster.xmp:
        info.add_itxt(_XMP, raster.xmp.decode("utf-8", "replace"))
    parameters = _pillow.animation_parameters(raster, frames)
    data = _pillow.encode(
        image,
        "PNG",
        compress_level=0 if len(frames) == 1 else min(level, _MAX_ZLIB_LEVEL),
        icc_profile=frames[0].icc_profile,
        exif=raster.exif,
        dpi=raster.dpi,
        pnginfo=info,
        **parameters,
    )
    return _compress(data, level, _passes(image) if progressive else ()) if len(frames) == 1 else data


def _encode_samples(pixels: Image.Image | DeepPixels, level: int, metadata: list[bytes], *, interlaced: bool) -> bytes:
    """A still without palette, through libpng only if its filters make the file smaller."""
    import numpy as np
    from imagecodecs import deflate_encode

    samples = np.asarray(pixels) if isinstance(pixels, Image.Image) else pixels.array
    header = (*pixels.size, 8 * samples.itemsize, _COLOR_TYPES[pixels.mode], 0, 0, int(interlaced))
    filtered = _filters_help(samples, level)
    passes = [samples[y::down, x::across] for x, y, across, down in _PASSES] if interlaced else [samples]
    parts = [_rows(part, filtered=filtered) for part in passes if part.size]
    rows = bytearray().join(parts) if interlaced else parts.pop()
    del samples, passes, pixels  # free memory before compression
    chunks = _chunk(b"IHDR", struct.pack(">IIBBBBB", *header)), *metadata
    return b"".join([_SIGNATURE, *chunks, _chunk(b"IDAT", bytes(deflate_encode(rows, level))), _chunk(b"IEND", b"")])


def _filters_help(samples: NDArray[Any], level: int) -> bool:
    """Whether a part of the rows compresses better with filters, as in photos; drawings and text often do not."""
    import numpy as np
    from imagecodecs import deflate_encode

    starts = range(0, len(samples), max(_BAND, len(samples) // _BANDS))
    part = np.concatenate([samples[start : start + _BAND] for start in starts])
    without, with_filters = (len(deflate_encode(_rows(part, filtered=way), level)) for way in (False, True))
    return with_filters < without


def _rows(samples: NDArray[Any], *, filtered: bool) -> bytearray:
    """The rows as PNG stores them before compression, each after the number of its filter."""
    import numpy as np
    from imagecodecs import PNG as LIBPNG
    from imagecodecs import png_encode

    if filtered:
        return _split(bytes(png_encode(np.ascontiguousarray(samples), level=0, filter=LIBPNG.FILTER.ALL)))[1]
    big_endian = samples.astype(samples.dtype.newbyteorder(">"), order="C", copy=False)
    rows = bytearray(len(samples) * (1 + big_endian[0].nbytes))
    view = np.frombuffer(rows, np.uint8).reshape(len(samples), -1)
    view[:, 1:] = big_endian.reshape(len(samples), -1).view(np.uint8)
    return rows


def _metadata_chunks(raster: Raster, frame: Frame) -> Iterator[bytes]:
    """The metadata as chunks to insert before the pixels."""
    if frame.icc_profile:
        yield _chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(frame.icc_profile))
    if raster.dpi:
        yield _chunk(b"pHYs", struct.pack(">IIB", *(round(value / 0.0254) for value in raster.dpi), 1))
    if raster.exif:
        yield _chunk(b"eXIf", raster.exif.removeprefix(_exif.PREFIX))
    if raster.xmp:
        yield _chunk(b"iTXt", _XMP.encode() + b"\0\0\0\0\0" + raster.xmp)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _passes(image: Image.Image) -> Iterator[bytes]:
    """The pictures of the passes of an interlaced PNG, as uncompressed files."""
    for x, y, across, down in _PASSES:
        size = (image.width - x + across - 1) // across, (image.height - y + down - 1) // down
        if min(size) > 0:
            matrix = (across, 0, x + 0.5 - across / 2, 0, down, y + 0.5 - down / 2)
            part = image.transform(size, Image.Transform.AFFINE, matrix)
            yield _pillow.encode(part, "PNG", compress_level=0)


def _compress(data: bytes, level: int, passes: Iterable[bytes] = ()) -> bytes:
    """Compresses a still that was written with compression level 0, interlaced if there are `passes`.

    libdeflate takes a third of the time of the zlib in Pillow and libpng.
    """
    from imagecodecs import deflate_encode

    before, rows, after = _split(data)
    del data  # free memory before compression
    interlaced = bytearray().join(_split(part)[1] for part in passes)
    if interlaced:
        header, rows = before[1], interlaced
        before[1] = _chunk(header[4:8], header[8:_INTERLACE] + b"\1")
    return b"".join([*before, _chunk(b"IDAT", bytes(deflate_encode(rows, level))), *after])


def _split(data: bytes) -> tuple[list[bytes], bytearray, list[bytes]]:
    """The signature and chunks before the pixels, the decompressed rows, and the chunks after."""
    before: list[bytes] = [_SIGNATURE]
    after: list[bytes] = []
    rows, inflater = bytearray(), zlib.decompressobj()
    for kind, chunk in _read_chunks(memoryview(data)):
        if kind == b"IDAT":
            rows += inflater.decompress(chunk[8:-4])
        else:
            (after if rows else before).append(bytes(chunk))
    return before, rows, after


def _read_chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The type and the complete bytes of each chunk."""
    start = len(_SIGNATURE)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        yield bytes(data[start + 4 : start + 8]), data[start:end]
        start = end


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
