"""Writes PSD and PSB files: the merged image, and one layer if it is transparent, because only layers can be."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from imagecodecs import packbits_encode
from numpy.typing import NDArray
from PIL import Image

from engine import DeepPixels
from plugins._psd.reader import BITMAP, CMYK, GRAY, INDEXED, LAB, RGB

_MODES = {"1": BITMAP, "L": GRAY, "P": INDEXED, "RGB": RGB, "RGBA": RGB, "CMYK": CMYK, "LAB": LAB}
_RLE = 1  # compression
_ALPHA = -1  # id of the channel of a layer
_LAYER_NAME = b"\7Layer 1"  # a Pascal string, padded to a multiple of four bytes


def write(pixels: Image.Image | DeepPixels, resources: Mapping[int, bytes], *, large: bool) -> bytes:
    """A file with 1, 8 or 16 bits per sample; a PSB if it is `large`. `resources` are its image resources by number."""
    mode, (width, height) = pixels.mode, pixels.size
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    planes: NDArray[Any] = np.moveaxis(array, -1, 0) if array.ndim == 3 else array[None]
    if mode == "CMYK":
        planes = np.iinfo(array.dtype).max - planes  # stored inverted
    if mode == "LAB":
        planes = planes ^ np.array([0, 128, 128], np.uint8).reshape(3, 1, 1)  # a and b are signed outside of Pillow
    depth = array.itemsize * 8
    if mode == "1":
        planes, depth = np.packbits(~planes, axis=-1), 1  # 1 is black
    return b"".join(
        (
            struct.pack(">4sH6xHIIHH", b"8BPS", 2 if large else 1, len(planes), height, width, depth, _MODES[mode]),
            _section(_palette(pixels) if isinstance(pixels, Image.Image) and mode == "P" else b""),
            _section(b"".join(_resource(number, content) for number, content in resources.items())),
            _section(_layers(planes, depth, large=large) if mode == "RGBA" else b"", large=large),
            _compress(_on_white(planes) if mode == "RGBA" else planes, large=large),
        )
    )


def _section(content: bytes, multiple: int = 1, *, large: bool = False) -> bytes:
    """The content after its length, of 8 bytes if `large`, which includes padding to a `multiple` of bytes."""
    content += b"\0" * (-len(content) % multiple)
    return len(content).to_bytes(8 if large else 4) + content


def _palette(image: Image.Image) -> bytes:
    """The colors of a palette: all of red, then of green and of blue."""
    colors = np.zeros((256, 3), np.uint8)
    samples = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    colors[: len(samples)] = samples
    return colors.T.tobytes()


def _resource(number: int, content: bytes) -> bytes:
    return struct.pack(">4sHHI", b"8BIM", number, 0, len(content)) + content + b"\0" * (len(content) % 2)


def _layers(planes: NDArray[Any], depth: int, *, large: bool) -> bytes:
    """The content of the section of layers. The number of layers is negative: the merged image has transparency."""
    height, width = planes.shape[1:]
    channels = {_ALPHA: _compress(planes[-1:], large=large)}
    channels |= {number: _compress(plane[None], large=large) for number, plane in enumerate(planes[:-1])}
    lengths = [struct.pack(">hQ" if large else ">hI", number, len(content)) for number, content in channels.items()]
    record = struct.pack(">hIIIIH", -1, 0, 0, height, width, len(channels)) + b"".join(lengths)
    record += struct.pack(">4s4sBBBx", b"8BIM", b"norm", 255, 0, 0)
    record += _section(_section(b"") + _section(b"") + _LAYER_NAME)  # no mask, no blending ranges
    layers = _section(record + b"".join(channels.values()), 4, large=large)
    if depth == 8:
        return layers + _section(b"")
    empty = _section(b"", large=large)
    return empty + _section(b"") + b"8BIMMt16" + empty + b"8BIMLr16" + layers


def _on_white(planes: NDArray[Any]) -> NDArray[Any]:
    """The colors blended with white by the last plane, and that plane."""
    maximum = np.iinfo(planes.dtype).max
    opacity = planes[-1] / np.float32(maximum)
    blended = planes.copy()
    for plane in blended[:-1]:
        plane[:] = maximum - (maximum - plane) * opacity + 0.5
    return blended


def _compress(planes: NDArray[Any], *, large: bool) -> bytes:
    """The compression, the lengths of the rows, and the rows in PackBits."""
    samples = planes.astype(planes.dtype.newbyteorder(">"), copy=False).ravel().view(np.uint8)
    rows = [packbits_encode(row) for row in samples.reshape(-1, planes.shape[2] * planes.itemsize)]
    return struct.pack(f">H{len(rows)}{'I' if large else 'H'}", _RLE, *map(len, rows)) + b"".join(rows)
