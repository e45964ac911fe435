"""The chunks of PNG files, and the rows of pixels that they hold: filtered if that helps, compressed by libdeflate."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import lazy_imports

with lazy_imports():
    import imagecodecs
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODULES = ("imagecodecs._deflate", "imagecodecs._png")
SIGNATURE = b"\x89PNG\r\n\x1a\n"
DEFAULT_EFFORT = 5
LEVELS = (1, 2, 3, 4, 6, 7, 8, 9, 10)
"""Levels of libdeflate by effort. 6 has the size of zlib's default in a third of the time; 11 and 12 save nothing."""

# The parts of an image that are compressed to decide on filters.
_BANDS = 16
_BAND_ROWS = 4
_EMPTY_FILE = 1024  # bytes; the most that libpng writes besides the rows
# Bytes of pixels that libpng writes at a time, and the most that it adds to them.
_CHUNK = 8192
_CHUNK_OVERHEAD = 64


def chunk(kind: bytes, body: bytes) -> bytes:
    """The complete bytes of a chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def read_chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The type and the complete bytes of each chunk."""
    start = len(SIGNATURE)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        yield bytes(data[start + 4 : start + 8]), data[start:end]
        start = end


def compress_pixels(image: Image.Image, effort: int = DEFAULT_EFFORT) -> bytes:
    """The rows of an image of bytes as the image data of a PNG: each after the number of its filter, compressed."""
    return compress(np.asarray(image), LEVELS[effort - 1])


def compress(samples: NDArray[np.uint8], level: int) -> bytes:
    """The same for samples of 8 bits, compressed by a level of libdeflate."""
    return bytes(imagecodecs.deflate_encode(rows(samples, filtered=filters_help(samples, level)), level))


def pack(samples: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Samples of 0 to 255 as samples of fewer bits, several in a byte."""
    count = 8 // bits
    padded = np.pad(samples >> (8 - bits), ((0, 0), (0, -samples.shape[1] % count)))
    packed = np.zeros((len(padded), padded.shape[1] // count), np.uint8)
    for position in range(count):
        packed |= padded[:, position::count] << (8 - bits * (position + 1))
    return packed


def filters_help(samples: NDArray[Any], level: int) -> bool:
    """Whether a part of the rows compresses better with filters, as in photos; drawings and text often do not."""
    without, with_filters = sizes_of_bands(samples, level)
    return with_filters < without


def sizes_of_bands(samples: NDArray[Any], level: int) -> tuple[int, int]:
    """The bytes of a part of the rows without filters, and with them."""
    starts = range(0, len(samples), max(_BAND_ROWS, len(samples) // _BANDS))
    part = np.concatenate([samples[start : start + _BAND_ROWS] for start in starts])
    without, with_filters = (len(imagecodecs.deflate_encode(rows(part, filtered=way), level)) for way in (False, True))
    return without, with_filters


def rows(samples: NDArray[Any], *, filtered: bool) -> bytearray:
    """The rows as PNG stores them before compression, each after the number of its filter."""
    if filtered:
        # The size of a file without compression; imagecodecs would reserve less for narrow images.
        size = _EMPTY_FILE + (samples.nbytes + len(samples)) * _CHUNK // (_CHUNK - _CHUNK_OVERHEAD)
        with suppress(imagecodecs.PngError):  # the image can be written without filters
            # Unlike ascontiguousarray, this makes the usual strides even for a side of one pixel.
            contiguous = samples.ravel().reshape(samples.shape)
            encoded = imagecodecs.png_encode(contiguous, level=0, filter=imagecodecs.PNG.FILTER.ALL, out=size)
            return _decompressed_rows(bytes(encoded))
    big_endian = samples.astype(samples.dtype.newbyteorder(">"), order="C", copy=False)
    rows = bytearray(len(samples) * (1 + big_endian[0].nbytes))
    view = np.frombuffer(rows, np.uint8).reshape(len(samples), -1)
    view[:, 1:] = big_endian.reshape(len(samples), -1).view(np.uint8)
    return rows


def _decompressed_rows(data: bytes) -> bytearray:
    inflater = zlib.decompressobj()
    rows = bytearray()
    for kind, found in read_chunks(memoryview(data)):
        if kind == b"IDAT":
            rows += inflater.decompress(found[8:-4])
    return rows
