"""PCX (ZSoft Paintbrush), with all numbers of bits and planes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from engine import (
    RASTER,
    Content,
    CorruptInput,
    FileFormat,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    lazy_imports,
)
from plugins._pixels import pillow, sample_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = ("numpy", "PIL.PcxImagePlugin")
_HEADER = struct.Struct("<BBBBHHHHHH48sxBHH")
_START = 128  # offset of the pixels
_VERSIONS = (0, 2, 3, 4, 5)
_WITHOUT_PALETTE = (0, 3)
_COLORS = 1  # kind of a palette; others are gray
_PALETTE_MARK = 0x0C  # precedes a palette at the end of the file
_PALETTE_SIZE = 768  # bytes
# The colors of EGA adapters, for files without a palette.
_EGA = bytes.fromhex("0000000000aa00aa0000aaaaaa0000aa00aaaa5500aaaaaa5555555555ff55ff5555ffffff5555ff55ffffff55ffffff")


class _Header(NamedTuple):
    """The header. `row_bytes` is the size of a row of one plane, `bits` the number of bits of a sample in it."""

    mark: int
    version: int
    encoding: int
    bits: int
    left: int
    top: int
    right: int
    bottom: int
    dpi_across: int
    dpi_down: int
    colors: bytes
    planes: int
    row_bytes: int
    palette_kind: int

    @property
    def size(self) -> tuple[int, int]:
        return self.right - self.left + 1, self.bottom - self.top + 1

    @property
    def is_consistent(self) -> bool:
        """Whether the image is of a known kind: bits of palette indexes in one or several planes, or 8 bits."""
        return (
            self.version in _VERSIONS
            and self.encoding <= 1
            and (self.bits in (1, 2, 4) and self.planes in (1, 2, 3, 4) and self.bits * self.planes <= 8)
            | (self.bits == 8 and self.planes in (1, 3, 4))
            and min(self.size) > 0
        )


def _sniff(content: Content) -> int:
    return 5 if len(content) >= _HEADER.size and _Header(*_HEADER.unpack(content[: _HEADER.size])).is_consistent else 0


PCX = FileFormat(
    "pcx",
    media_type="image/x-pcx",
    extensions=("pcx", "pcc"),
    sniff=Signature((0, b"\x0a"), then=_sniff),
    bytes_per_pixel=0.5,
)


@conversion(PCX, RASTER, memory=16)
def decode(data: bytes) -> Raster:
    header = _Header(*_HEADER.unpack_from(data))
    mode = (
        "1"
        if header.bits * header.planes == 1
        else {3: "RGB", 4: "RGBA"}.get(header.planes if header.bits == 8 else 1, "P")
    )
    dpi = pillow.plausible_dpi((header.dpi_across, header.dpi_down))
    return sample_arrays.to_raster(lambda: _read(data, header), header.size, mode, dpi=dpi)


def _read(data: bytes, header: _Header) -> Image.Image:
    width, height = header.size
    rows = _read_rows(data, header)
    if header.bits == 8 and header.planes > 1:
        return Image.fromarray(np.ascontiguousarray(np.moveaxis(rows[:, :, :width], 1, -1)))
    if header.bits * header.planes == 1:
        return Image.fromarray(np.unpackbits(rows[:, 0], axis=1)[:, :width] > 0)
    indexes = np.zeros((height, width), np.uint8)
    for plane in range(header.planes):
        indexes |= _unpacked(rows[:, plane], header.bits)[:, :width] << (plane * header.bits)
    palette = _palette(data, header)
    image = Image.fromarray(indexes)
    if palette is not None:
        image.putpalette(palette)
    return image


def _read_rows(data: bytes, header: _Header) -> NDArray[np.uint8]:
    """The bytes of the image: rows x planes x bytes. Raises CorruptInput."""
    width, height = header.size
    row_bytes = header.row_bytes
    needed = (width * header.bits + 7) // 8
    if row_bytes < needed:  # some programs write another number; rows have an even one
        row_bytes = needed + needed % 2
    count = row_bytes * header.planes * height
    if header.encoding:
        # As one row, because runs of some programs go on in the next row.
        stored = np.asarray(Image.frombytes("L", (count, 1), data[_START:], "pcx", "L", count))
    else:
        stored = sample_arrays.from_buffer(data, "u1", count, _START)
    return stored.reshape(height, header.planes, row_bytes)


def _unpacked(rows: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The samples of this number of bits in bytes, the first in the highest bits."""
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    samples = (rows[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return samples.reshape(len(rows), -1)


def _palette(data: bytes, header: _Header) -> bytes | None:
    """The colors; None for gray of 8 bits. Raises CorruptInput."""
    if header.bits * header.planes <= 4:
        return _EGA if header.version in _WITHOUT_PALETTE or not any(header.colors) else header.colors
    last = data[-_PALETTE_SIZE - 1 :]
    if len(data) < _START + len(last) or last[0] != _PALETTE_MARK:
        if header.palette_kind == _COLORS:
            raise CorruptInput("The file is truncated: its palette is missing.")
        return None
    return last[1:] if last[1:] != bytes(value for level in range(256) for value in [level] * 3) else None


@conversion(
    RASTER,
    PCX,
    capabilities=TargetCapabilities(("1", "L", "P", "RGB"), max_side=65_535, metadata=frozenset({"resolution"})),
)
def encode(raster: Raster) -> bytes:
    data = pillow.encode(raster.first_frame().image, "PCX")
    across, down = raster.dpi or (72, 72)
    return data[:12] + struct.pack("<HH", round(across), round(down)) + data[16:]
