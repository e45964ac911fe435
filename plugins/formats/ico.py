"""ICO and CUR (icons and cursors of Windows): the largest image is read, several are written."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageChops

from engine import (
    RASTER,
    AnyConversion,
    Content,
    CorruptInput,
    FileFormat,
    OptionValues,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    conversion,
    hookimpl,
)
from plugins._pixels import icons, pillow, sample_arrays
from plugins.formats import bmp, png

MODULES = ("numpy", *icons.MODULES)
_HEADER = struct.Struct("<HHH")
_ENTRY = struct.Struct("<BBBBHHII")
# Kinds of files.
_ICON = 1
_CURSOR = 2
_DEFAULT_SIZES = (16, 32, 48)  # besides the image itself
_MAX_SIDE = 256  # pixels
_PNG_SIDE = 256  # the least side that is written as PNG
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Sizes of headers of bitmaps.
_CORE = 12
_INFO = 40
_BITMAP = struct.Struct("<IiiHHIIiiII")
# Offset, and a value.
_COMPRESSION = 16
_BIT_FIELDS = 3
_MASKS = 12  # bytes
_MAX_ENTRIES = 1000


class _Image(NamedTuple):
    """An image in the file, which starts there: a PNG, or a bitmap, whose length may be wrong."""

    size: Size
    bits: int
    start: int
    length: int
    is_png: bool = False


def _sniff(content: Content) -> int:
    """8 for a file whose first entries are consistent."""
    if len(content) < _HEADER.size + _ENTRY.size:
        return 0
    _, _, count = _HEADER.unpack(content[: _HEADER.size])
    if not 1 <= count <= _MAX_ENTRIES:
        return 0
    directory = _HEADER.size + count * _ENTRY.size
    *_, size, offset = _ENTRY.unpack(content[_HEADER.size : _HEADER.size + _ENTRY.size])
    return 8 if size and directory <= offset < 1 << 28 and content[9:10] in (b"\0", b"\xff") else 0


ICO = FileFormat(
    "ico",
    media_type="image/vnd.microsoft.icon",
    extensions=("ico",),
    sniff=Signature((0, bytes([0, 0, _ICON, 0])), then=_sniff),
    bytes_per_pixel=0.5,
)
CUR = FileFormat(
    "cur",
    media_type="image/x-win-cursor",
    extensions=("cur",),
    sniff=Signature((0, bytes([0, 0, _CURSOR, 0])), then=_sniff),
    bytes_per_pixel=0.5,
)


def _images(data: bytes) -> list[_Image]:
    """The images of the file, in its order. Raises CorruptInput if it ends before one of them does."""
    _, _, count = _HEADER.unpack_from(data)
    entries = (_ENTRY.unpack_from(data, _HEADER.size + index * _ENTRY.size) for index in range(count))
    return [_image(data, offset, size) for *_, size, offset in entries]


def _image(data: bytes, start: int, length: int) -> _Image:
    if start + length > len(data):
        raise CorruptInput("The file is truncated.")
    if data.startswith(_PNG_SIGNATURE, start):
        width, height, depth = struct.unpack_from(">IIB", data, start + 16)
        return _Image((width, height), 4 * depth, start, length, is_png=True)
    # The length of a bitmap follows from its header; some programs write another one.
    if data[start] == _CORE:
        width, height, _, bits = struct.unpack_from("<4xHHHH", data, start)
    else:
        _, width, height, _, bits, *_ = _BITMAP.unpack_from(data, start)
    return _Image((width, abs(height) // 2), bits, start, length)


def decode(data: bytes) -> Raster:
    """The largest image, and of several the one with the most bits."""
    best = max(_images(data), key=lambda one: (one.size[0] * one.size[1], one.bits))
    if best.is_png:
        return png.decode(data[best.start : best.start + best.length])
    return sample_arrays.to_raster(lambda: _read_bitmap(data[best.start :], best), best.size, "RGBA")


def _read_bitmap(data: bytes, stored: _Image) -> Image.Image:
    """A bitmap with the mask after it. Raises CorruptInput."""
    size, bits = stored.size, stored.bits
    width, height = size
    info, start = _bitmap_header(data, size, bits)
    row = (width * bits + 31) // 32 * 4
    mask_row = (width + 31) // 32 * 4
    end = start + row * height
    pixels = sample_arrays.from_buffer(data, "u1", row * height, start).tobytes()
    if bits == 32 and info[_COMPRESSION : _COMPRESSION + 1] == b"\0":
        image = Image.frombytes("RGBA", size, pixels, "raw", ("BGRA", row, -1))
        if image.getchannel("A").getextrema() != (0, 0):
            return image
        image = image.convert("RGB")
    else:
        file_header = struct.pack("<2sIII", b"BM", 14 + end, 0, 14 + start)
        image = bmp.decode(file_header + info + data[len(info) : end]).first_frame().image
    mask = data[end : end + mask_row * height]
    if len(mask) < mask_row * height:  # some programs leave it out, or write shorter rows
        if mask and len(data) != stored.length:
            raise CorruptInput("The file is truncated.")
        return image
    transparent = Image.frombytes("1", size, mask, "raw", ("1", mask_row, -1)).convert("L")
    if not transparent.getbbox():
        return image
    image = image.convert("LA" if image.mode in ("1", "L") else "RGBA")
    image.putalpha(ImageChops.darker(image.getchannel("A"), ImageChops.invert(transparent)))
    return image


def _bitmap_header(data: bytes, size: Size, bits: int) -> tuple[bytes, int]:
    """The header of the bitmap with the height of the image instead of image and mask; the offset of the pixels."""
    length = int.from_bytes(data[:4], "little")
    colors = 1 << bits if bits <= 8 else 0
    if length == _CORE:
        return struct.pack("<IHHHH", _CORE, *size, 1, bits), _CORE + 3 * colors
    _, _, _, _, _, compression, _, across, down, used, important = _BITMAP.unpack_from(data)
    colors = min(used or colors, 256) if bits <= 8 else used
    header = _BITMAP.pack(length, *size, 1, bits, compression, 0, across, down, used, important)
    masks = _MASKS if compression == _BIT_FIELDS and length == _INFO else 0
    return header + data[_INFO:length], length + masks + 4 * colors


def _holds(options: OptionValues) -> TargetCapabilities:
    sizes = options.get("sizes")
    wanted = () if sizes is None else icons.parse_sizes(str(sizes))

    def fit(size: Size) -> Size:
        if not wanted:
            return icons.size_within(size, _MAX_SIDE)
        side = icons.reached(wanted, size)[-1]
        return side, side

    drawn_side = max(wanted, default=_MAX_SIDE)
    return TargetCapabilities(("RGB", "RGBA"), max_side=_MAX_SIDE, fit=fit, drawn_side=drawn_side)


def _encode(raster: Raster, sizes: str | None, kind: int) -> bytes:
    image = raster.first_frame().image.convert("RGBA")
    if sizes is None:
        largest = icons.within(image, _MAX_SIDE)
        smaller = [side for side in _DEFAULT_SIZES if side * side < largest.width * largest.height]
        images = [*(icons.square(image, side) for side in smaller), largest]
    else:
        wanted = icons.parse_sizes(sizes)
        icons.warn_of_sizes(wanted, image.size)
        images = [icons.square(image, side) for side in icons.reached(wanted, image.size)]
    return _file(images, kind)


def _file(images: Sequence[Image.Image], kind: int) -> bytes:
    """A file with these RGBA images."""
    blocks = [pillow.encode(one, "PNG") if max(one.size) >= _PNG_SIDE else _bitmap(one) for one in images]
    offset = _HEADER.size + len(images) * _ENTRY.size
    directory = _HEADER.pack(0, kind, len(images))
    planes, bits = (1, 32) if kind == _ICON else (0, 0)  # a cursor has its hotspot in these fields
    for image, block in zip(images, blocks, strict=True):
        width, height = (side % _MAX_SIDE for side in image.size)
        directory += _ENTRY.pack(width, height, 0, 0, planes, bits, len(block), offset)
        offset += len(block)
    return directory + b"".join(blocks)


def _bitmap(image: Image.Image) -> bytes:
    """A bitmap of 32 bits with the mask of its transparent pixels, for readers that know no alpha."""
    width, height = image.size
    transparent = image.getchannel("A").point([255] + [0] * 255).convert("1", dither=Image.Dither.NONE)
    mask = transparent.tobytes("raw", "1", (width + 31) // 32 * 4, -1)
    header = _BITMAP.pack(_INFO, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0)
    return header + image.tobytes("raw", "BGRA", 4 * width, -1) + mask


@conversion(RASTER, ICO, capabilities=_holds, memory=12)
def encode_icon(raster: Raster, *, sizes: icons.Sizes | None = None) -> bytes:
    """Without `sizes`, the image itself, and squares of the usual sizes below it."""
    return _encode(raster, sizes, _ICON)


@conversion(RASTER, CUR, capabilities=_holds, memory=12)
def encode_cursor(raster: Raster, *, sizes: icons.Sizes | None = None) -> bytes:
    return _encode(raster, sizes, _CURSOR)


@hookimpl
def conversions() -> list[AnyConversion]:
    readers: list[AnyConversion] = [conversion(one, RASTER, memory=16)(decode) for one in (ICO, CUR)]
    return [*readers, encode_icon, encode_cursor]
