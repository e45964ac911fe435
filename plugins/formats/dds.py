"""DDS (DirectDraw Surface): blocks of BC1 to BC7 and pixels of all kinds are read. Written without compression."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from PIL import Image

from engine import (
    RASTER,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    conversion,
    lazy_imports,
)
from engine.option_types import Exposure
from plugins._pixels import linear_light, sample_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

DDS = FileFormat(
    "dds",
    media_type="image/vnd-ms.dds",
    extensions=("dds",),
    sniff=Signature((0, b"DDS \x7c\0\0\0")),
    bytes_per_pixel=1,
)

MODULES = ("numpy",)
_FIELDS = struct.Struct("<12xII4xI52xI4sI4I4xI12x")
_WRITTEN = struct.Struct("<4s7I44x4I4I5I")
_EXTENSION = struct.Struct("<5I")  # follows a header with the code DX10
_START = 128  # offset of the pixels without the extension
# Kinds of pixels.
_ALPHA_PIXELS = 1
_ALPHA = 2
_CODE = 4
_PALETTE = 0x20
_RGB = 0x40
_LUMINANCE = 0x20000
_PALETTE_SIZE = 1024  # bytes
_CUBE_OF_DX10 = 4  # a flag of the extension
_LIGHT = 6  # the number of BC6
# Kinds of files with additional images.
_CUBE = 0x200
_VOLUME = 0x200000
_TEXTURE = 0x1000  # what is written: a texture
_CAPTIONS = 0x100F  # which fields are set
_PREMULTIPLIED = 2  # kind of alpha in the extension
_MIN_BLOCK = 4  # pixels across and down


class _Header(NamedTuple):
    height: int
    width: int
    depth: int
    flags: int
    code: bytes
    bits: int
    red: int
    green: int
    blue: int
    alpha: int
    caps: int


class _Blocks(NamedTuple):
    """Blocks of 4 x 4 pixels: the arguments of Pillow's decoder, the size of a block in bytes, and the mode."""

    number: int
    name: str
    size: int
    mode: str
    premultiplied: bool = False


class _Masks(NamedTuple):
    """Pixels of this number of bits, with red, green, blue and alpha at these bits. Gray is in the place of red."""

    bits: int
    masks: tuple[int, int, int, int]
    gray: bool = False


class _Samples(NamedTuple):
    """Samples of a type of NumPy: integers of 16 bits or linear light, in one to four bands."""

    kind: str
    bands: int


_Kind: TypeAlias = _Blocks | _Masks | _Samples
_BC1 = _Blocks(1, "BC1", 8, "RGBA")
_BC2 = _Blocks(2, "BC2", 16, "RGBA")
_BC3 = _Blocks(3, "BC3", 16, "RGBA")
_BC4 = _Blocks(4, "BC4", 8, "L")
_BC4_SIGNED = _Blocks(5, "BC4S", 8, "L")
_BC5 = _Blocks(5, "BC5", 16, "RGB")
_BC5_SIGNED = _Blocks(5, "BC5S", 16, "RGB")
_BC6 = _Blocks(6, "BC6H", 16, "RGB")
_BC6_SIGNED = _Blocks(-6, "BC6HS", 16, "RGB")
_BC7 = _Blocks(7, "BC7", 16, "RGBA")
_RGBA = _Masks(32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000))
_BGRA = _Masks(32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000))
_BGRX = _Masks(32, (0xFF0000, 0xFF00, 0xFF, 0))
_CODES: Mapping[bytes, _Kind] = MappingProxyType(
    {
        b"DXT1": _BC1,
        b"DXT2": _BC2._replace(premultiplied=True),
        b"DXT3": _BC2,
        b"DXT4": _BC3._replace(premultiplied=True),
        b"DXT5": _BC3,
        **dict.fromkeys((b"ATI1", b"BC4U"), _BC4),
        b"BC4S": _BC4_SIGNED,
        **dict.fromkeys((b"ATI2", b"BC5U"), _BC5),
        b"BC5S": _BC5_SIGNED,
        b"\x24\0\0\0": _Samples("<u2", 4),
        b"\x6f\0\0\0": _Samples("<f2", 1),
        b"\x70\0\0\0": _Samples("<f2", 2),
        b"\x71\0\0\0": _Samples("<f2", 4),
        b"\x72\0\0\0": _Samples("<f4", 1),
        b"\x73\0\0\0": _Samples("<f4", 2),
        b"\x74\0\0\0": _Samples("<f4", 4),
    }
)
# By the number of a format of DXGI; first the numbers of one type with the same layout.
_FORMATS: Mapping[int, _Kind] = MappingProxyType(
    {
        **dict.fromkeys((70, 71, 72), _BC1),
        **dict.fromkeys((73, 74, 75), _BC2),
        **dict.fromkeys((76, 77, 78), _BC3),
        **dict.fromkeys((79, 80), _BC4),
        81: _BC4_SIGNED,
        **dict.fromkeys((82, 83), _BC5),
        84: _BC5_SIGNED,
        **dict.fromkeys((94, 95), _BC6),
        96: _BC6_SIGNED,
        **dict.fromkeys((97, 98, 99), _BC7),
        **dict.fromkeys((27, 28, 29), _RGBA),
        **dict.fromkeys((87, 90, 91), _BGRA),
        **dict.fromkeys((88, 92, 93), _BGRX),
        **dict.fromkeys((23, 24), _Masks(32, (0x3FF, 0x3FF << 10, 0x3FF << 20, 3 << 30))),
        **dict.fromkeys((48, 49), _Masks(16, (0xFF, 0xFF00, 0, 0))),
        **dict.fromkeys((60, 61), _Masks(8, (0xFF, 0, 0, 0), gray=True)),
        65: _Masks(8, (0, 0, 0, 0xFF), gray=True),
        85: _Masks(16, (0xF800, 0x7E0, 0x1F, 0)),
        86: _Masks(16, (0x7C00, 0x3E0, 0x1F, 0x8000)),
        115: _Masks(16, (0xF00, 0xF0, 0xF, 0xF000)),
        2: _Samples("<f4", 4),
        6: _Samples("<f4", 3),
        10: _Samples("<f2", 4),
        11: _Samples("<u2", 4),
        16: _Samples("<f4", 2),
        34: _Samples("<f2", 2),
        35: _Samples("<u2", 2),
        41: _Samples("<f4", 1),
        54: _Samples("<f2", 1),
        56: _Samples("<u2", 1),
    }
)
_MODES = {1: "L", 2: "RGB", 3: "RGB", 4: "RGBA"}  # by number of bands; two are red and green


@conversion(DDS, RASTER, memory=45, isolated=True)
def decode(data: bytes, *, exposure: Exposure = 0) -> Raster:
    """The first image, at its full size."""
    header = _Header(*_FIELDS.unpack_from(data))
    start = _START
    count = header.depth if header.caps & _VOLUME else 6 if header.caps & _CUBE else 1
    palette = b""
    if header.flags & _PALETTE:
        palette = data[start : start + _PALETTE_SIZE]
        start = start + _PALETTE_SIZE
    if header.flags & _CODE and header.code == b"DX10":
        number, _, misc, array, alpha = _EXTENSION.unpack_from(data, start)
        start = start + _EXTENSION.size
        count = max(count, array * (6 if misc & _CUBE_OF_DX10 else 1))
        kind = _FORMATS.get(number)
        if isinstance(kind, _Blocks):
            kind = kind._replace(premultiplied=alpha & 7 == _PREMULTIPLIED)
    else:
        kind = _legacy_kind(header)
    if kind is None or len(palette) not in (0, _PALETTE_SIZE):
        raise CorruptInput("The pixels of the DDS are of an unknown kind.")
    if count > 1:
        FidelityWarning.issue("pictures_dropped", "Only the first image of the texture was converted.")
    size = (header.width, header.height)
    mode = _mode(kind, palette)
    if isinstance(kind, _Blocks) and abs(kind.number) == _LIGHT:
        return linear_light.raster(
            lambda: _read_light_blocks(data[start:], size, kind), mode, size, bits=16, exposure=exposure
        )
    if isinstance(kind, _Samples) and kind.kind != "<u2":
        bits = 8 * int(kind.kind[2:])
        return linear_light.raster(
            lambda: _read_samples(data[start:], size, kind), mode, size, bits=bits, exposure=exposure
        )
    linear_light.ignore_exposure(exposure)
    return sample_arrays.to_raster(
        lambda: _read(data[start:], size, kind, palette), size, mode, deep=isinstance(kind, _Samples)
    )


def _legacy_kind(header: _Header) -> _Kind | None:
    """The kind of pixels of a file without the extension. None if it is unknown."""
    flags = header.flags
    bits = header.bits
    if flags & _CODE:
        return _CODES.get(header.code)
    if flags & _PALETTE:
        return _Masks(8, (0xFF, 0, 0, 0), gray=True)
    if bits not in (8, 16, 24, 32) or not flags & (_RGB | _LUMINANCE | _ALPHA):
        return None
    alpha = header.alpha if flags & (_ALPHA_PIXELS | _ALPHA) else 0
    if flags & _RGB:
        return _Masks(bits, (header.red, header.green, header.blue, alpha))
    if flags & _LUMINANCE and bits == 16 and header.red == 0xFFFF:
        return _Samples("<u2", 1)
    return _Masks(bits, (header.red if flags & _LUMINANCE else 0, 0, 0, alpha), gray=True)


def _mode(kind: _Kind, palette: bytes) -> str:
    if palette:
        return "RGBA"
    if isinstance(kind, _Blocks):
        return kind.mode
    if isinstance(kind, _Samples):
        return _MODES[kind.bands]
    return ("L" if kind.gray else "RGB") + ("A" if kind.masks[3] else "")


def _read(data: bytes, size: Size, kind: _Kind, palette: bytes) -> Image.Image | DeepPixels:
    if isinstance(kind, _Blocks):
        return _read_blocks(data, size, kind)
    if isinstance(kind, _Samples):
        array = _read_samples(data, size, kind)
        return DeepPixels(array, _MODES[kind.bands])
    image = Image.fromarray(_read_masks(data, size, kind))
    if palette:
        image.putpalette(palette, "RGBA")
        image = image.convert("RGBA")
    return image


def _blocks(data: bytes, size: Size, kind: _Blocks) -> tuple[Size, bytes]:
    """The size of all blocks together in pixels, and the blocks. Raises CorruptInput."""
    width, height = (-(-side // _MIN_BLOCK) * _MIN_BLOCK for side in size)
    count = width * height // _MIN_BLOCK**2 * kind.size
    return (width, height), sample_arrays.from_buffer(data, "u1", count).tobytes()


def _read_light_blocks(data: bytes, size: Size, kind: _Blocks) -> NDArray[np.float32]:
    (width, height), blocks = _blocks(data, size, kind)
    light = np.asarray(imagecodecs.bcn_decode(blocks, kind.number, shape=(height, width, 3)))
    return light[: size[1], : size[0]].astype(np.float32)


def _read_blocks(data: bytes, size: Size, kind: _Blocks) -> Image.Image:
    whole, blocks = _blocks(data, size, kind)
    mode = kind.mode
    name = kind.name
    if kind is _BC4_SIGNED:  # as both halves of BC5
        blocks = np.repeat(np.frombuffer(blocks, "V8"), 2).tobytes()
        mode = "RGB"
        name = "BC5S"
    image = Image.frombytes(mode, whole, blocks, "bcn", kind.number, name).crop((0, 0, *size))
    if mode != kind.mode:
        return image.getchannel("R")
    if kind.premultiplied:
        image = Image.frombytes("RGBa", size, image.tobytes()).convert("RGBA")
    return image


def _read_masks(data: bytes, size: Size, kind: _Masks) -> NDArray[np.uint8]:
    stored = sample_arrays.from_buffer(data, "u1", size[0] * size[1] * kind.bits // 8).reshape(*size[::-1], -1)
    pixels = np.zeros(size[::-1], np.uint32)
    for position in range(kind.bits // 8):
        pixels |= stored[..., position].astype(np.uint32) << np.uint32(8 * position)
    *colors, alpha = kind.masks
    bands = [sample_arrays.at_mask(pixels, mask) for mask in (colors[:1] if kind.gray else colors)]
    if alpha:
        bands.append(sample_arrays.at_mask(pixels, alpha))
    return np.stack(bands, axis=-1) if len(bands) > 1 else bands[0]


def _read_samples(data: bytes, size: Size, kind: _Samples) -> NDArray[Any]:
    """Integers of 16 bits, or light as 32-bit floats; of two bands, blue is 0."""
    count = size[0] * size[1] * kind.bands
    samples = sample_arrays.from_buffer(data, kind.kind, count).reshape(*size[::-1], kind.bands)
    samples = samples.astype(np.uint16 if kind.kind == "<u2" else np.float32)
    if kind.bands == 2:
        samples = np.concatenate((samples, np.zeros_like(samples[..., :1])), axis=-1)
    return samples[..., 0] if kind.bands == 1 else samples


_LAYOUTS: Mapping[str, tuple[int, tuple[int, int, int, int]]] = MappingProxyType(
    {
        "L": (_LUMINANCE, (0xFF, 0, 0, 0)),
        "RGB": (_RGB, (0xFF0000, 0xFF00, 0xFF, 0)),
        "RGBA": (_RGB | _ALPHA_PIXELS, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
    }
)


@conversion(RASTER, DDS, capabilities=TargetCapabilities(tuple(_LAYOUTS)))
def encode(raster: Raster) -> bytes:
    image = raster.first_frame().image
    flags, masks = _LAYOUTS[image.mode]
    bands = len(image.mode)
    fields = [b"DDS ", 124, _CAPTIONS, image.height, image.width, bands * image.width, 0, 0]
    fields += [32, flags, 0, 8 * bands, *masks, _TEXTURE, 0, 0, 0, 0]
    return _WRITTEN.pack(*fields) + image.tobytes("raw", {"L": "L", "RGB": "BGR", "RGBA": "BGRA"}[image.mode])
