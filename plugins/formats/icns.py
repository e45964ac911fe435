"""ICNS (icons of macOS): the largest image is read; squares of the usual sizes are written as PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from engine import (
    RASTER,
    Content,
    CorruptInput,
    FileFormat,
    InvalidOption,
    OptionValues,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    conversion,
    lazy_imports,
)
from plugins._pixels import icons, pillow, sample_arrays
from plugins.formats import png

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = ("numpy", *icons.MODULES)


def _is_complete(content: Content) -> bool:
    return int.from_bytes(content[4:8]) == len(content)


ICNS = FileFormat(
    "icns",
    media_type="image/icns",
    extensions=("icns",),
    sniff=Signature((0, b"icns")),
    is_complete=_is_complete,
    bytes_per_pixel=0.5,
)

_HEAD = 8  # bytes before the content of a file or a block: type and length
_PNG = b"\x89PNG\r\n\x1a\n"
_ARGB = b"ARGB"
_JPEG_2000 = (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")
_ARGB_SIDES = {b"ic04": 16, b"ic05": 32, b"icsb": 18, b"icsB": 36}
# By type: the side, and the type of the block with the alpha.
_COLORS = {b"is32": (16, b"s8mk"), b"il32": (32, b"l8mk"), b"ih32": (48, b"h8mk"), b"it32": (128, b"t8mk")}
_ZEROS = 4  # bytes at the start of it32
# Palettes and bitmaps, by type: size, bits, and the type of the bitmap whose second half is the mask.
_INDEXED = {
    kind + suffix: (size, bits, mask)
    for kind, size, mask in (
        (b"ich", (48, 48), b"ich#"),
        (b"icl", (32, 32), b"ICN#"),
        (b"ics", (16, 16), b"ics#"),
        (b"icm", (16, 12), b"icm#"),
    )
    for suffix, bits in ((b"8", 8), (b"4", 4))
} | {
    mask: (size, 1, mask)
    for size, mask in (((48, 48), b"ich#"), ((32, 32), b"ICN#"), ((16, 16), b"ics#"), ((16, 12), b"icm#"))
}
_COLORS_4 = bytes.fromhex(
    "fffffffcf305ff6402dd0806f208844600a50000d402abea1fb714006411562c0590713ac0c0c0808080404040000000"
)
# The types that are written, by side.
_TYPES: Mapping[int, bytes] = MappingProxyType(
    {16: b"icp4", 32: b"icp5", 64: b"icp6", 128: b"ic07", 256: b"ic08", 512: b"ic09", 1024: b"ic10"}
)


class _Image(NamedTuple):
    """An image of the file, and a function that decodes it."""

    size: Size
    bits: int
    open: Callable[[], Raster]


def _blocks(data: bytes) -> dict[bytes, bytes]:
    """The contents of the blocks by type. Raises CorruptInput."""
    found: dict[bytes, bytes] = {}
    start, end = _HEAD, int.from_bytes(data[4:8])
    while start < end:
        length = int.from_bytes(data[start + 4 : start + _HEAD])
        if length < _HEAD or start + length > len(data):
            raise CorruptInput("The file is truncated.")
        found.setdefault(data[start : start + 4], data[start + _HEAD : start + length])
        start += length
    return found


@conversion(ICNS, RASTER, memory=16, isolated=True)
def decode(data: bytes) -> Raster:
    """The largest image, and of several the one with the most bits."""
    images = list(_images(_blocks(data)))
    if not images:
        raise CorruptInput("The file has no image of a known kind.")
    return max(images, key=lambda one: (one.size[0] * one.size[1], one.bits)).open()


def _images(blocks: Mapping[bytes, bytes]) -> Iterator[_Image]:
    for kind, content in blocks.items():
        if content.startswith(_PNG):
            size = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
            yield _Image(size, 32, lambda content=content: png.decode(content))  # type: ignore[misc]
        elif content.startswith(_JPEG_2000):
            image = pillow.open_image(content, "JPEG2000")
            yield _Image(image.size, 32, lambda content=content: pillow.decode(content, "JPEG2000"))  # type: ignore[misc]
        elif content.startswith(_ARGB) and kind in _ARGB_SIDES:
            yield _square(_ARGB_SIDES[kind], 32, _Packed(content[len(_ARGB) :], 4, None))
        elif kind in _COLORS:
            side, mask = _COLORS[kind]
            start = _ZEROS if kind == b"it32" and content[:_ZEROS] == bytes(_ZEROS) else 0
            yield _square(side, 24, _Packed(content[start:], 3, blocks.get(mask)))
        elif kind in _INDEXED:
            size, bits, bitmap = _INDEXED[kind]
            mask_of = blocks.get(bitmap, b"")[-(-size[0] * size[1] // 8) :]
            yield _indexed(content, size, bits, mask_of)


class _Packed(NamedTuple):
    """Compressed planes: red, green and blue, after alpha if there are four. `mask` is the alpha of three."""

    content: bytes
    planes: int
    mask: bytes | None


def _square(side: int, bits: int, packed: _Packed) -> _Image:
    size = side, side
    return _Image(size, bits, lambda: sample_arrays.to_raster(lambda: _read_packed(packed, size), size, "RGBA"))


def _read_packed(packed: _Packed, size: Size) -> Image.Image:
    area = size[0] * size[1]
    samples = packed.content
    if len(samples) != packed.planes * area:
        samples = _unpacked(samples, packed.planes * area)
    planes = [Image.frombytes("L", size, samples[start : start + area]) for start in range(0, len(samples), area)]
    if packed.planes == 4:
        planes = [*planes[1:], planes[0]]
    elif packed.mask is not None and len(packed.mask) >= area:
        planes.append(Image.frombytes("L", size, packed.mask[:area]))
    return Image.merge("RGBA" if len(planes) == 4 else "RGB", planes)


def _unpacked(packed: bytes, count: int) -> bytes:
    """`count` bytes of runs: up to 127, that many and one more follow; from 128, three and up repeat the next one."""
    unpacked = bytearray()
    position = 0
    while len(unpacked) < count:
        head = packed[position]
        if head < 0x80:
            unpacked += packed[position + 1 : position + 2 + head]
            position += 2 + head
        else:
            unpacked += packed[position + 1 : position + 2] * (head - 125)
            position += 2
    return bytes(unpacked[:count])


def _indexed(content: bytes, size: Size, bits: int, mask: bytes) -> _Image:
    return _Image(
        size, bits, lambda: sample_arrays.to_raster(lambda: _read_indexed(content, size, bits, mask), size, "RGBA")
    )


def _read_indexed(content: bytes, size: Size, bits: int, mask: bytes) -> Image.Image:
    shape = size[::-1]
    stored = sample_arrays.from_buffer(content, "u1", size[0] * size[1] * bits // 8)
    unpacked = np.unpackbits(stored).reshape(*shape, bits)
    indexes = np.packbits(unpacked, axis=-1)[..., 0] >> (8 - bits)
    colors = {1: np.array([[255] * 3, [0] * 3], np.uint8), 4: _palette(_COLORS_4), 8: _colors_8()}[bits]
    image = Image.fromarray(colors[indexes])
    if 8 * len(mask) >= size[0] * size[1]:
        opaque = np.unpackbits(np.frombuffer(mask, np.uint8))[: size[0] * size[1]].reshape(shape) * np.uint8(255)
        image.putalpha(Image.fromarray(opaque))
    return image


def _palette(colors: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(colors, np.uint8).reshape(-1, 3)


def _colors_8() -> NDArray[np.uint8]:
    """The 256 colors of Macintosh: a cube, and ramps of red, green, blue and gray between its levels."""
    levels = range(255, -1, -51)
    cube = [(red, green, blue) for red in levels for green in levels for blue in levels][:-1]
    ramp = [level for level in range(0xEE, 0, -0x11) if level % 51]
    ramps = [
        tuple(level * bit for bit in bits) for bits in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)) for level in ramp
    ]
    return _palette(bytes(sample for color in (*cube, *ramps, (0, 0, 0)) for sample in color))


def _sides(sizes: str | None, size: Size) -> Sequence[int]:
    """The sides that are written of an image of this size. Raises InvalidOption for a size that _TYPES lacks."""
    wanted = tuple(_TYPES) if sizes is None else icons.parse_sizes(sizes)
    if not _TYPES.keys() >= {*wanted}:
        available = [one for one in _TYPES if one <= 256]
        names = ", ".join(map(str, available))
        raise InvalidOption(
            f"The sizes in an ICNS are {names}.", reason="out_of_range", param="sizes", details={"available": available}
        )
    least = next(one for one in _TYPES if one >= min(max(size), max(_TYPES)))
    return [one for one in wanted if one <= max(size)] or [least]


def _holds(options: OptionValues) -> TargetCapabilities:
    sizes = options.get("sizes")

    def fit(size: Size) -> Size:
        side = _sides(None if sizes is None else str(sizes), size)[-1]
        return side, side

    drawn_side = max(_TYPES) if sizes is None else max(icons.parse_sizes(str(sizes)))
    return TargetCapabilities(("RGB", "RGBA"), max_side=max(_TYPES), fit=fit, drawn_side=drawn_side)


@conversion(RASTER, ICNS, cost=3, memory=16, capabilities=_holds)
def encode(raster: Raster, *, sizes: icons.Sizes | None = None) -> bytes:
    """Without `sizes`, squares of all sizes that the image reaches."""
    image = raster.first_frame().image
    if sizes is not None:
        icons.warn_of_sizes(icons.parse_sizes(sizes), image.size)
    images = {side: pillow.encode(icons.square(image, side), "PNG") for side in _sides(sizes, image.size)}
    blocks = [_TYPES[side] + (_HEAD + len(block)).to_bytes(4) + block for side, block in images.items()]
    return b"icns" + (_HEAD + sum(map(len, blocks))).to_bytes(4) + b"".join(blocks)
