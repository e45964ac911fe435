"""PNG, still and animated: 8 bits a sample through Pillow, 16 through libpng. libdeflate compresses stills."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

from imagecodecs import deflate_encode, png_decode, png_encode
from PIL import PngImagePlugin

from engine import (
    RASTER,
    DeepPixels,
    FileFormat,
    Frame,
    Options,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.decode_limits import MAX_FRAMES
from engine.formats import ends_with
from plugins import _exif, _pillow

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

PNG = FileFormat(
    "png",
    media_type="image/png",
    extensions=("png", "apng"),
    sniff=Signature((0, _SIGNATURE)),
    animated=True,
    is_complete=ends_with(b"IEND\xaeB`\x82"),
)

_LAYOUTS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_LEVEL = 6  # as small as zlib makes photos by default, in a third of the time
_DEPTH = 24  # where the header tells the bits a sample
_HEADER_END = 33  # signature and IHDR
_ABOUT = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
_XMP = "XML:com.adobe.xmp"


@conversion(PNG, RASTER, cost=2)
def decode(data: bytes, _options: Options) -> Raster:
    image = _pillow.opened(data, "PNG")
    # Texts and EXIF may stand behind the pixels, and Pillow decodes them to find those.
    if max(map(data.rfind, _ABOUT)) > data.find(b"IDAT"):
        image.load()
    # The header may claim any number.
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES + 2)
    # The picture for readers that know no animation is no frame of it.
    still = count > 1 and image.info.get("default_image", False)
    order = list(range(1 if still else 0, count))
    raster = _pillow.raster(image, order, animated=len(order) > 1)
    return replace(raster, deep_frames=_deep(data)) if data[_DEPTH] == 16 and raster.count == 1 else raster


def _deep(data: bytes) -> Iterator[Frame]:
    header = _pillow.opened(data, "PNG")
    array = png_decode(data)
    array = _pillow.upright(array, header.getexif().get(_exif.ORIENTATION, 1))
    bands = array.shape[2] if array.ndim == 3 else 1
    yield Frame(DeepPixels(array, _LAYOUTS[bands]), header.info.get("icc_profile"))


@conversion(RASTER, PNG, cost=5, memory=20)
def encode(raster: Raster, _options: Options) -> bytes:
    modes = ("RGBA",) if raster.animated else ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
    deep = ("L", "LA", "RGB", "RGBA")
    frames = list(raster.converted_for(TargetCapabilities(modes, deep_modes=deep, icc=True, animation=True)).frames)
    if isinstance(frames[0].pixels, DeepPixels):
        stored = png_encode(frames[0].pixels.array, level=0)
        return _compressed(_with_chunks(bytes(stored), _chunks(raster, frames[0])))
    info = PngImagePlugin.PngInfo()
    if raster.xmp:
        info.add_itxt(_XMP, raster.xmp.decode("utf-8", "replace"))
    parameters = _pillow.animation(raster, frames)
    data = _pillow.saved(
        frames[0].image,
        "PNG",
        compress_level=0 if len(frames) == 1 else None,
        icc_profile=frames[0].icc_profile,
        exif=raster.exif,
        dpi=raster.dpi,
        pnginfo=info,
        **parameters,
    )
    return _compressed(data) if len(frames) == 1 else data


def _chunks(raster: Raster, frame: Frame) -> Iterator[bytes]:
    """What travels with the picture, as chunks that stand before its data."""
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


def _with_chunks(data: bytes, chunks: Iterator[bytes]) -> bytes:
    return data[:_HEADER_END] + b"".join(chunks) + data[_HEADER_END:]


def _compressed(data: bytes) -> bytes:
    """A still whose rows have been filtered and not compressed, compressed.

    Pillow and libpng are built with a zlib that takes three times as long.
    """
    before: list[bytes] = [_SIGNATURE]
    after: list[bytes] = []
    raw, rows = bytearray(), zlib.decompressobj()
    for kind, chunk in _split(memoryview(data)):
        if kind == b"IDAT":
            raw += rows.decompress(chunk[8:-4])
        else:
            (after if raw else before).append(bytes(chunk))
    del data, chunk  # large: they make room for what is next
    return b"".join([*before, _chunk(b"IDAT", bytes(deflate_encode(raw, _LEVEL))), *after])


def _split(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks of a file, each whole and by its kind."""
    start = len(_SIGNATURE)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        yield bytes(data[start + 4 : start + 8]), data[start:end]
        start = end


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
