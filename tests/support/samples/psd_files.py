"""Builds PSD and PSB files from their channels, as Photoshop lays them out."""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psd_tools.compression import encode_prediction, encode_rle

BITMAP, GRAY, INDEXED, RGB, CMYK, MULTICHANNEL, DUOTONE, LAB = 0, 1, 2, 3, 4, 7, 8, 9
RAW, RLE, ZIP, ZIP_WITH_PREDICTION = range(4)
RESOLUTION, ICC_PROFILE, VERSION_INFO, EXIF, XMP = 1005, 1039, 1057, 1058, 1060
TRANSPARENT_INDEX = 1047

_BITS = {"|u1": 8, ">u2": 16, ">f4": 32}


def build(
    planes: NDArray[Any],
    mode: int,
    *,
    compression: int = RLE,
    layers: int = 0,
    width: int | None = None,
    version: int = 1,
    palette: bytes = b"",
    resources: Mapping[int, bytes] | None = None,
    transparency_block: bool = False,
    layer_blocks: bytes = b"",
) -> bytes:
    """A file whose merged image has these channels as stored: channels x height x width, big-endian.

    `layers` is the number of layers, negative if the first channel after the colors is transparency; the layers are
    empty, with the tagged blocks `layer_blocks`. `width` is given for a bitmap, whose channel holds 8 pixels per byte.
    """
    depth = 1 if width else _BITS[planes.dtype.str]
    channels, height, columns = planes.shape
    header = struct.pack(">4sH6xHIIHH", b"8BPS", version, channels, height, width or columns, depth, mode)
    blocks = (_resource(number, content) for number, content in (resources or {}).items())
    section = _layer_section(layers, depth, version, transparency_block, layer_blocks)
    merged = _compress(planes, compression, width or columns, depth, version)
    parts = (header, sized(palette), sized(b"".join(blocks)), sized(section, version))
    return b"".join(parts) + struct.pack(">H", compression) + merged


def sized(content: bytes, version: int = 1) -> bytes:
    """The content after its length, which has 8 bytes for some sections of PSB (`version` 2)."""
    return len(content).to_bytes(4 * version, "big") + content


def _resource(number: int, content: bytes) -> bytes:
    return struct.pack(">4sHH", b"8BIM", number, 0) + sized(content) + b"\0" * (len(content) % 2)


def _layer_section(count: int, depth: int, version: int, transparency: bool, blocks: bytes) -> bytes:
    if not (count or transparency):
        return b""
    extra = sized(sized(b"") + sized(b"") + b"\3one" + blocks)
    record = struct.pack(">4IH4s4sBBBx", 0, 0, 0, 0, 0, b"8BIM", b"norm", 255, 0, 0) + extra
    info = struct.pack(">h", count) + record * abs(count)
    info += b"\0" * (-len(info) % 4)
    if depth <= 8:
        return sized(info, version) + sized(b"")
    marker = b"8BIMMt16" + sized(b"", version) if transparency else b""
    return sized(b"", version) + sized(b"") + marker + (b"8BIMLr16" + sized(info, version) if count else b"")


def _compress(planes: NDArray[Any], compression: int, width: int, depth: int, version: int) -> bytes:
    samples, rows = planes.tobytes(), planes.shape[0] * planes.shape[1]
    if compression == RLE:
        packed: bytes = encode_rle(samples, width, rows, depth, version)
        return packed
    if compression == ZIP_WITH_PREDICTION:
        samples = encode_prediction(samples, width, rows, depth)
    return samples if compression == RAW else zlib.compress(samples)


def samples(bands: int, depth: int = 8, size: tuple[int, int] = (37, 23)) -> NDArray[Any]:
    """Height x width x bands of different values."""
    dtype = {8: np.uint8, 16: np.uint16}[depth]
    return np.random.default_rng(bands).integers(0, 1 << depth, (size[1], size[0], bands)).astype(dtype)


def planes(array: NDArray[Any]) -> NDArray[Any]:
    """The samples as a file stores them."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 0), array.dtype.newbyteorder(">"))


def on_white(array: NDArray[Any]) -> NDArray[Any]:
    """The colors blended with white, and the unchanged alpha."""
    maximum = np.iinfo(array.dtype).max
    alpha = array[..., -1:] / maximum
    colors = array[..., :-1] * alpha + maximum * (1 - alpha)
    return np.dstack((np.rint(colors).astype(array.dtype), array[..., -1]))
