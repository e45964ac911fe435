"""SGI (Silicon Graphics image), with 8 and 16 bits per sample."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from engine import (
    RASTER,
    Content,
    CorruptInput,
    DeepPixels,
    FileFormat,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    lazy_imports,
)
from plugins._pixels import sample_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = ("numpy",)
_HEADER = struct.Struct(">HBBHHHHII4x80sI")
# Offset of the samples, or of the tables of rows.
_MAGIC = 0x01DA
_START = 512
_DITHERED = 1  # kinds of colors: three and two bits in a byte
_PALETTE = 3  # a palette without an image
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


class _Header(NamedTuple):
    """The header. `size` is the number of bytes of a sample."""

    magic: int
    compressed: int
    size: int
    dimensions: int
    width: int
    rows: int
    planes: int
    least: int
    greatest: int
    name: bytes
    kind: int

    @property
    def height(self) -> int:
        return self.rows if self.dimensions > 1 else 1

    @property
    def bands(self) -> int:
        return self.planes if self.dimensions > 2 else 1

    @property
    def is_consistent(self) -> bool:
        known = self.compressed <= 1 and self.size in (1, 2) and self.dimensions in (1, 2, 3)
        return known and self.kind <= _PALETTE


def _sniff(content: Content) -> int:
    return 6 if len(content) >= _HEADER.size and _Header(*_HEADER.unpack(content[: _HEADER.size])).is_consistent else 0


SGI = FileFormat(
    "sgi",
    media_type="image/x-sgi",
    extensions=("sgi", "rgb", "rgba", "bw", "int", "inta"),
    sniff=Signature((0, _MAGIC.to_bytes(2)), then=_sniff),
    bytes_per_pixel=1,
)


@conversion(SGI, RASTER, memory=32)
def decode(data: bytes) -> Raster:
    header = _Header(*_HEADER.unpack_from(data))
    if header.kind == _PALETTE or header.bands < 1:
        raise CorruptInput("The SGI file has no image.")
    is_dithered = header.kind == _DITHERED and header.bands == 1 and header.size == 1
    mode = "RGB" if is_dithered else _MODES[min(header.bands, 4)]
    return sample_arrays.to_raster(
        lambda: _dithered(_read(data, header)) if is_dithered else _pixels(_read(data, header), mode),
        (header.width, header.height),
        mode,
        deep=header.size == 2,
    )


def _read(data: bytes, header: _Header) -> NDArray[Any]:
    """The samples: height x width x bands, from the top. Raises CorruptInput."""
    bands = min(header.bands, 4)
    shape = (header.height, header.width)
    samples = np.empty((*shape, bands), f"u{header.size}")
    for band in range(bands):
        if header.compressed:
            plane = _decompress(data, header, band)
        else:
            count = header.width * header.height
            start = _START + band * count * header.size
            plane = sample_arrays.from_buffer(data, f">u{header.size}", count, start).reshape(shape)
        samples[..., band] = plane[::-1]
    return samples


def _decompress(data: bytes, header: _Header, band: int) -> NDArray[Any]:
    """A plane of run-length encoded rows, from the bottom. Raises CorruptInput."""
    starts = sample_arrays.from_buffer(data, ">u4", header.height * header.bands, _START).tolist()
    rows = (_row(data, start, header) for start in starts[band * header.height :][: header.height])
    return np.frombuffer(b"".join(rows), f">u{header.size}").reshape(header.height, header.width)


def _row(data: bytes, position: int, header: _Header) -> bytes:
    """The samples of the row whose packets begin at this position. Raises CorruptInput."""
    size = header.size
    row = bytearray()
    while (missing := header.width - len(row) // size) > 0:
        head = int.from_bytes(data[position : position + size])
        count = min(head & 0x7F, missing)
        position += size
        samples = data[position : position + (size * count if head & 0x80 else size)]
        if not samples or not count or len(samples) % size:
            raise CorruptInput("A row is too short, or the file is truncated.")
        row += samples if head & 0x80 else samples * count
        position += len(samples)
    return bytes(row)


def _pixels(samples: NDArray[Any], mode: str) -> Image.Image | DeepPixels:
    samples = samples[..., 0].copy() if mode == "L" else samples
    return Image.fromarray(samples) if samples.itemsize == 1 else DeepPixels(samples, mode)


def _dithered(samples: NDArray[np.uint8]) -> Image.Image:
    """An image of bytes with three bits of red and green, and two of blue."""
    return Image.fromarray(
        np.concatenate([sample_arrays.at_mask(samples, mask) for mask in (0x07, 0x38, 0xC0)], axis=-1)
    )


_HOLDS_MODES = ("L", "LA", "RGB", "RGBA")


@conversion(
    RASTER, SGI, memory=16, capabilities=TargetCapabilities(_HOLDS_MODES, deep_modes=_HOLDS_MODES, max_side=65_535)
)
def encode(raster: Raster) -> bytes:
    """Not compressed: few readers decompress 16 bits."""
    pixels = raster.first_frame().pixels
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    planes = np.moveaxis(array, -1, 0) if array.ndim == 3 else array[None]
    size = array.itemsize
    (bands, height, width) = planes.shape
    dimensions = 2 if bands == 1 else 3
    greatest = (1 << 8 * size) - 1
    header = _HEADER.pack(_MAGIC, 0, size, dimensions, width, height, bands, 0, greatest, b"", 0)
    return header.ljust(_START, b"\0") + planes[:, ::-1].astype(f">u{size}").tobytes()
