"""PNG, still and animated: 8 bits per sample through Pillow, 16 through libpng. libdeflate compresses stills."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

from imagecodecs import deflate_encode, png_decode, png_encode
from PIL import PngImagePlugin

from engine import (
    MAX_FRAMES,
    RASTER,
    AnyConversion,
    DeepPixels,
    FileFormat,
    Frame,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    ends_with,
    hookimpl,
)
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

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_LEVEL = 6  # of libdeflate: the size of zlib's default in a third of the time
_DEPTH = 24  # offset of the bits per sample
_HEADER_END = 33  # offset after signature and IHDR
_METADATA_CHUNKS = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
_XMP = "XML:com.adobe.xmp"


@conversion(PNG, RASTER, cost=2)
def decode(data: bytes) -> Raster:
    image = _pillow.open_image(data, "PNG")
    # Pillow reads metadata after the pixels only by decoding them.
    if max(map(data.rfind, _METADATA_CHUNKS)) > data.find(b"IDAT"):
        image.load()
    # The header may contain any number.
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES + 2)
    # The default image, for readers without animation, is not a frame.
    has_default = count > 1 and image.info.get("default_image", False)
    order = list(range(1 if has_default else 0, count))
    raster = _pillow.to_raster(image, order, animated=len(order) > 1)
    return replace(raster, deep_frames=_decode_deep(data)) if data[_DEPTH] == 16 and raster.count == 1 else raster


def _decode_deep(data: bytes) -> Iterator[Frame]:
    header = _pillow.open_image(data, "PNG")
    array = png_decode(data)
    array = _pillow.apply_orientation(array, header.getexif().get(_exif.ORIENTATION, 1))
    bands = array.shape[2] if array.ndim == 3 else 1
    yield Frame(DeepPixels(array, _MODES[bands]), header.info.get("icc_profile"))


@conversion(RASTER, PNG, cost=5, memory=20)
def encode(raster: Raster) -> bytes:
    modes = ("RGBA",) if raster.animated else ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
    deep = () if raster.animated else ("L", "LA", "RGB", "RGBA")
    frames = list(raster.converted_for(TargetCapabilities(modes, deep_modes=deep, icc=True, animation=True)).frames)
    if isinstance(frames[0].pixels, DeepPixels):
        uncompressed = png_encode(frames[0].pixels.array, level=0)
        return _compress(_insert_chunks(bytes(uncompressed), _metadata_chunks(raster, frames[0])))
    info = PngImagePlugin.PngInfo()
    if raster.xmp:
        info.add_itxt(_XMP, raster.xmp.decode("utf-8", "replace"))
    parameters = _pillow.animation_parameters(raster, frames)
    data = _pillow.encode(
        frames[0].image,
        "PNG",
        compress_level=0 if len(frames) == 1 else None,
        icc_profile=frames[0].icc_profile,
        exif=raster.exif,
        dpi=raster.dpi,
        pnginfo=info,
        **parameters,
    )
    return _compress(data) if len(frames) == 1 else data


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


def _insert_chunks(data: bytes, chunks: Iterator[bytes]) -> bytes:
    return data[:_HEADER_END] + b"".join(chunks) + data[_HEADER_END:]


def _compress(data: bytes) -> bytes:
    """Compresses a still that was written with compression level 0.

    libdeflate takes a third of the time of the zlib in Pillow and libpng.
    """
    before: list[bytes] = [_SIGNATURE]
    after: list[bytes] = []
    raw, rows = bytearray(), zlib.decompressobj()
    for kind, chunk in _read_chunks(memoryview(data)):
        if kind == b"IDAT":
            raw += rows.decompress(chunk[8:-4])
        else:
            (after if raw else before).append(bytes(chunk))
    del data, chunk  # free memory before compression
    return b"".join([*before, _chunk(b"IDAT", bytes(deflate_encode(raw, _LEVEL))), *after])


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
