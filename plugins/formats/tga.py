"""TGA (Truevision Targa). Written with run-length encoding and a footer."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

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

MODULES = ("numpy", "PIL.TgaImagePlugin")
_HEADER = struct.Struct("<BBBHHBHHHHBB")
_FOOTER = b"TRUEVISION-XFILE.\0"
_FOOTER_SIZE = 26
_ATTRIBUTES = 494  # offset in the extension area of what the alpha means
_NO_ALPHA = (0, 1, 2)  # values of it; 2: the data is to be kept, but is no alpha
_ALPHA = 3
_PREMULTIPLIED = 4
# Types of images; the last is added.
_PALETTE = 1
_COLORS = 2
_GRAY = 3
_COMPRESSED = 8
_DEPTHS = {_PALETTE: (8, 15, 16), _COLORS: (15, 16, 24, 32), _GRAY: (1, 8, 16)}  # bits per pixel by type
_KINDS = tuple(bytes([kind | packed]) for kind in _DEPTHS for packed in (0, _COMPRESSED))
_ENTRY_DEPTHS = (15, 16, 24, 32)  # bits per color of a palette
_MAX_ALPHA_BITS = 8
# Flags.
_FROM_RIGHT = 0x10
_FROM_TOP = 0x20
_INTERLEAVED = 0xC0
_RAW_MODES = {8: ("L", "L"), 16: ("I;16", "I;16"), 24: ("RGB", "BGR"), 32: ("RGBA", "BGRA")}


class _Header(NamedTuple):
    """The header. The palette has `length` colors with `entry` bits, the first with the index `first`.

    `depth` is the number of bits of a pixel.
    """

    id_size: int
    has_palette: int
    kind: int
    first: int
    length: int
    entry: int
    left: int
    top: int
    width: int
    height: int
    depth: int
    flags: int

    @property
    def type(self) -> int:
        return self.kind & ~_COMPRESSED

    @property
    def palette(self) -> int:
        """The offset of the palette."""
        return _HEADER.size + self.id_size

    @property
    def start(self) -> int:
        """The offset of the pixels."""
        return self.palette + (self.length * ((self.entry + 7) // 8) if self.has_palette else 0)

    @property
    def is_consistent(self) -> bool:
        return (
            self.has_palette in (0, 1)
            and self.type in _DEPTHS
            and self.depth in _DEPTHS[self.type]
            and (self.entry in _ENTRY_DEPTHS or self.entry == self.has_palette == 0)
            and (self.type != _PALETTE or (self.has_palette == 1 and self.length > 0))
            and not self.flags & _INTERLEAVED
            and self.flags & 0xF <= _MAX_ALPHA_BITS  # some programs write 1 or 4 where there are 8
            and self.width > 0
            and self.height > 0
        )


def _read_header(content: Content) -> _Header | None:
    return _Header(*_HEADER.unpack(content[: _HEADER.size])) if len(content) > _HEADER.size else None


def _sniff(content: Content) -> int:
    header = _read_header(content)
    if header is None:
        return 0
    if content[-len(_FOOTER) :] == _FOOTER and header.type in _DEPTHS:
        return len(_FOOTER)
    return 3 if header.is_consistent else 0


TGA = FileFormat(
    "tga",
    media_type="image/x-tga",
    extensions=("tga", "icb", "vda", "vst", "targa"),
    sniff=Signature((2, _KINDS), then=_sniff),
    bytes_per_pixel=0.3,
)


@conversion(TGA, RASTER, memory=16)
def decode(data: bytes) -> Raster:
    header = _read_header(data)
    if header is None or header.type not in _DEPTHS or header.depth not in _DEPTHS[header.type]:
        raise CorruptInput("The type of the image in the TGA is unknown.")
    attributes = _alpha_type(data)
    has_alpha = attributes not in _NO_ALPHA and header.depth in (16, 32)
    mode = {_PALETTE: "P", _COLORS: "RGBA" if has_alpha else "RGB", _GRAY: "LA" if header.depth == 16 else "L"}[
        header.type
    ]
    return sample_arrays.to_raster(lambda: _read(data, header, attributes), (header.width, header.height), mode)


def _alpha_type(data: bytes) -> int | None:
    """The kind of alpha in the extension area. None without one."""
    if data[-len(_FOOTER) :] != _FOOTER:
        return None
    start = int.from_bytes(data[-_FOOTER_SIZE:][:4], "little")
    return data[start + _ATTRIBUTES] if 0 < start < len(data) - _ATTRIBUTES else None


def _read(data: bytes, header: _Header, attributes: int | None) -> Image.Image:
    image = _read_pixels(data, header)
    if header.flags & _FROM_RIGHT:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if header.type == _PALETTE:
        return _with_palette(image, _read_palette(data, header))
    if image.mode == "I;16":
        image = _from_16_bits(image, header)
    # Without an extension area, programs may have left the alpha 0.
    if image.mode == "RGBA" and (
        attributes in _NO_ALPHA or (attributes is None and image.getchannel("A").getextrema() == (0, 0))
    ):
        return image.convert("RGB")
    if image.mode == "RGBA" and attributes == _PREMULTIPLIED:
        return Image.frombytes("RGBa", image.size, image.tobytes()).convert("RGBA")
    return image


def _read_pixels(data: bytes, header: _Header) -> Image.Image:
    """The pixels from the top: numbers of 8 or 16 bits, or red, green, blue and alpha. Raises CorruptInput."""
    size = (header.width, header.height)
    depth = (header.depth + 7) // 8 * 8
    direction = 1 if header.flags & _FROM_TOP else -1
    if header.depth == 1:
        bits = sample_arrays.from_buffer(data, "u1", (header.width + 7) // 8 * header.height, header.start)
        return Image.frombytes("1", size, bits.tobytes(), "raw", ("1", 0, direction)).convert("L")
    mode, raw_mode = _RAW_MODES[depth]
    if header.kind & _COMPRESSED:
        packets = data[header.start :]
        try:
            return Image.frombytes(mode, size, packets, "tga_rle", raw_mode, direction, depth)
        except ValueError:  # some programs write runs that cross rows
            row = Image.frombytes(mode, (header.width * header.height, 1), packets, "tga_rle", raw_mode, 1, depth)
            return Image.frombytes(mode, size, row.tobytes(), "raw", (mode, 0, direction))
    stored = sample_arrays.from_buffer(data, "u1", header.width * header.height * depth // 8, header.start)
    return Image.frombytes(mode, size, stored.tobytes(), "raw", (raw_mode, 0, direction))


def _from_16_bits(image: Image.Image, header: _Header) -> Image.Image:
    """Gray with alpha, or colors of 5 bits, of pixels with 15 or 16 bits."""
    pixels = np.asarray(image)
    if header.type == _GRAY:
        return Image.fromarray(pixels.astype("<u2").view(np.uint8).reshape(*pixels.shape, 2))
    return Image.fromarray(_colors(pixels, header.depth))


def _colors(pixels: NDArray[Any], depth: int) -> NDArray[np.uint8]:
    """Red, green, blue, and alpha if there is one, of pixels or colors of a palette with 15 or 16 bits."""
    bands = [sample_arrays.at_mask(pixels, mask) for mask in (0x7C00, 0x03E0, 0x001F)]
    if depth == 16:
        bands.append(255 - sample_arrays.at_mask(pixels, 0x8000))  # the bit is set in transparent pixels
    return np.stack(bands, axis=-1)


def _read_palette(data: bytes, header: _Header) -> NDArray[np.uint8]:
    """The colors by index: red, green, blue, and alpha if not all are transparent. Raises CorruptInput."""
    if not header.has_palette or header.entry not in _ENTRY_DEPTHS:
        raise CorruptInput("The palette of the TGA is missing.")
    size = (header.entry + 7) // 8
    stored = sample_arrays.from_buffer(data, "u1", header.length * size, header.palette).reshape(-1, size)
    colors = _colors(stored.copy().view("<u2")[:, 0], header.entry) if size == 2 else stored[:, [2, 1, 0, 3][:size]]
    if colors.shape[1] == 4 and (not colors[:, 3].any() or colors[:, 3].all()):
        colors = colors[:, :3]
    return np.concatenate((np.zeros((header.first, colors.shape[1]), np.uint8), colors))


def _with_palette(image: Image.Image, colors: NDArray[np.uint8]) -> Image.Image:
    """The image of these indexes. Raises CorruptInput for an index without a color."""
    if int(image.getextrema()[1]) >= len(colors):  # type: ignore[arg-type]
        raise CorruptInput("A color is missing in the palette.")
    if image.mode != "L" or len(colors) > 256:
        return Image.fromarray(colors[np.asarray(image)])
    image.putpalette(colors[:, :3].tobytes())
    if colors.shape[1] == 4:
        image.info["transparency"] = colors[:, 3].tobytes()
    return image


@conversion(RASTER, TGA, capabilities=TargetCapabilities(("L", "P", "RGB", "RGBA"), max_side=65_535))
def encode(raster: Raster) -> bytes:
    image = raster.first_frame().image
    data = pillow.encode(image, "TGA", compression="tga_rle")
    if image.mode != "RGBA":
        return data
    pixels = data[:-_FOOTER_SIZE]
    extension = struct.pack("<H", _ATTRIBUTES + 1).ljust(_ATTRIBUTES, b"\0") + bytes((_ALPHA,))
    return pixels + extension + struct.pack("<II", len(pixels), 0) + _FOOTER
