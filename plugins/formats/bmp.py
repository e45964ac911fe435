"""BMP (Windows bitmap). Written without alpha, which most readers show as black."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from PIL import Image

from engine import RASTER, Content, FileFormat, Frame, Raster, Signature, TargetCapabilities, conversion, lazy_imports
from plugins._pixels import pillow, sample_arrays

with lazy_imports():
    import numpy as np


def _is_complete(content: Content) -> bool:
    return int.from_bytes(content[2:6], "little") == len(content)


BMP = FileFormat(
    "bmp",
    media_type="image/bmp",
    extensions=("bmp", "dib"),
    sniff=Signature((0, b"BM")),
    is_complete=_is_complete,
    bytes_per_pixel=1,
)

_HEADER = struct.Struct("<10xIIiiHHI")  # offset of the pixels; size of the second header, width, height, …
_COMPRESSION = 30  # offset
_MASKS = 54  # offset, in all versions
_MASKS_END = _MASKS + 16
# Methods of compression.
_BIT_FIELDS = 3
_ALPHA_BIT_FIELDS = 6
# Sizes of headers: with other methods, and the least with a mask for alpha.
_OS2_HEADER = 64
_ALPHA_HEADER = 56
# Masks that Pillow reads, by bits per pixel.
_PILLOW_MASKS = {16: (0xF800, 0x07E0, 0x001F, 0), 32: (0xFF0000, 0x00FF00, 0x0000FF, 0)}
_STRIP = 64  # rows converted at a time


@conversion(BMP, RASTER)
def decode(data: bytes) -> Raster:
    if len(data) < _MASKS_END:
        return pillow.decode(data, "BMP")
    _, header, _, _, _, bits, compression = _HEADER.unpack_from(data)
    if header == _OS2_HEADER or bits not in _PILLOW_MASKS or compression not in (_BIT_FIELDS, _ALPHA_BIT_FIELDS):
        return pillow.decode(data, "BMP")
    # Pillow reads few masks, but refuses others only when it opens a file.
    known = struct.pack("<I", _BIT_FIELDS), struct.pack("<4I", *_PILLOW_MASKS[bits])
    start = data[:_COMPRESSION] + known[0] + data[_COMPRESSION + 4 : _MASKS] + known[1]
    image = pillow.open_image(start + data[_MASKS_END : 14 + header], "BMP")
    return replace(pillow.to_raster(image, [0]), frames=_decode_bit_fields(data), sample=None)


def _decode_bit_fields(data: bytes) -> Iterator[Frame]:
    """The image, of samples at any bits of pixels with 16 or 32 bits. Raises CorruptInput for other masks."""
    offset, header, width, height, _, bits, compression = _HEADER.unpack_from(data)
    masks = list(struct.unpack_from("<4I", data, _MASKS))
    if header < _ALPHA_HEADER and compression != _ALPHA_BIT_FIELDS:
        masks[3] = 0
    per_row = (width * bits + 31) // 32 * 32 // bits
    pixels = np.frombuffer(data, f"<u{bits // 8}", per_row * abs(height), offset).reshape(abs(height), per_row)
    rows = pixels[:, :width] if height < 0 else pixels[::-1, :width]
    samples = np.empty((*rows.shape, 4 if masks[3] else 3), np.uint8)
    for top in range(0, abs(height), _STRIP):
        for band, mask in enumerate(masks[: samples.shape[2]]):
            samples[top : top + _STRIP, :, band] = sample_arrays.at_mask(rows[top : top + _STRIP], mask)
    yield Frame(Image.fromarray(samples))


@conversion(RASTER, BMP, capabilities=TargetCapabilities(("1", "L", "P", "RGB"), metadata=frozenset({"resolution"})))
def encode(raster: Raster) -> bytes:
    return pillow.encode(raster.first_frame().image, "BMP", dpi=raster.dpi)
