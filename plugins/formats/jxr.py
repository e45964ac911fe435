"""JPEG XR (HD Photo): integers of 8 and 16 bits, and linear light as half, float and fixed point."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import (
    RASTER,
    Content,
    CorruptInput,
    DeepPixels,
    FileFormat,
    Frame,
    ImageMetadata,
    Loss,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    check_size,
    combined_orientation,
    conversion,
    lazy_imports,
)
from engine.option_types import Exposure, Lossless, Quality
from plugins._metadata import exif_data, iptc_data
from plugins._pixels import linear_light, pillow
from plugins.formats import tiff

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

_PIXEL_FORMAT = 0xBC01
_ORIENTATION = 0xBC02
_WIDTH = 0xBC80
_HEIGHT = 0xBC81
_ACROSS = 0xBC82
_DOWN = 0xBC83
_PARTS = ((0xBCC0, 0xBCC1), (0xBCC2, 0xBCC3))  # tags with the offset and size of the colors, and of alpha
# A tag, a type.
_PROFILE = 0x8773
_LONG = 4
_CODESTREAM = b"WMPHOTO\0"
_SHORT_SIDES = 0x80
_EXCHANGED = 5  # the first EXIF orientation that exchanges width and height
# EXIF orientations by the transformation in the file: mirrored, after it is turned clockwise from the fifth on.
_MIRRORED = (1, 4, 2, 3)
_ORIENTATIONS = (*_MIRRORED, *(combined_orientation(6, mirrored) for mirrored in _MIRRORED))
_PREFIX = bytes.fromhex("24c3dd6f034efe4bb1853d77768dc9")  # starts most pixel formats; a number follows
_RGBA_8 = bytes.fromhex("2dadc7f58d6add43a7a8a29935261ae9")
_RGB_FLOAT = bytes.fromhex("8fd7fee3dbe8cf4a84c1e97f6136b327")
_TRANSPARENT_INKS = (0x2C, 0x2D)
_LIGHT = 32  # bits of samples that are linear light
# The mode and depth of each pixel format.
_FORMATS: Mapping[bytes, tuple[str, int]] = MappingProxyType(
    {
        _RGBA_8: ("RGBA", 8),
        _RGB_FLOAT: ("RGB", _LIGHT),
        **{
            _PREFIX + bytes([number]): (mode, bits)
            for mode, bits, numbers in (
                ("L", 8, (0x05, 0x08)),
                ("L", 16, (0x0B,)),
                ("L", _LIGHT, (0x11, 0x13, 0x3E, 0x3F)),
                ("RGB", 8, (0x0C, 0x0D, 0x0E)),
                ("RGB", 16, (0x15,)),
                ("RGB", _LIGHT, (0x12, 0x18, 0x1B, 0x3B, 0x40, 0x41, 0x42)),
                ("RGBA", 8, (0x0F, 0x10)),
                ("RGBA", 16, (0x16, 0x17)),
                ("RGBA", _LIGHT, (0x19, 0x1A, 0x1D, 0x1E, 0x3A)),
                ("CMYK", 8, (0x1C,)),
                ("CMYK", 16, (0x1F,)),
                ("RGBA", 8, _TRANSPARENT_INKS),  # as they are read
            )
            for number in numbers
        },
    }
)
# Pixel formats that the decoder knows under another name: an unused band, colors that are multiplied by alpha, or
# fixed point with four bands, of which it would read the last one as zero.
_READ_AS = {
    **dict.fromkeys((0x0E, 0x10), 0x0F),
    **dict.fromkeys((0x17, 0x1D, 0x40), 0x16),
    **dict.fromkeys((0x1A, 0x1B, 0x1E, 0x41), 0x19),
    0x42: 0x3A,
}
# Of fixed point that is read as something else: the type, and the number that is white.
_FIXED = {**dict.fromkeys((0x1D, 0x40), ("i2", 1 << 13)), **dict.fromkeys((0x1E, 0x41), ("i4", 1 << 24))}
_PREMULTIPLIED = frozenset(_PREFIX + bytes([number]) for number in (0x10, 0x17, 0x1A))
_MIN_LOSSY_WIDTH = 32  # pixels; the encoder fails on narrower ones


def _is_complete(content: Content) -> bool:
    block = exif_data.parse_file(content[:])
    if block is None:
        return False
    parts = [(block.integer(offset), block.integer(size)) for offset, size in _PARTS]
    # jxrlib writes the end of alpha as its size, so that their sum may be beyond the end.
    return parts[0][1] > 0 and sum(parts[0]) <= len(content) and all(max(part) <= len(content) for part in parts)


JXR = FileFormat(
    "jxr",
    media_type="image/jxr",
    extensions=("jxr", "wdp", "hdp"),
    sniff=Signature((0, b"II\xbc\x01")),
    is_complete=_is_complete,
    must_be_complete=True,
    lossy=True,
)

MODULES = ("imagecodecs._jpegxr", *tiff.MODULES)


@conversion(JXR, RASTER, cost=3, memory=50, isolated=True)
def decode(data: bytes, *, exposure: Exposure = 0) -> Raster:
    block = exif_data.parse_file(data)
    if block is None:
        raise CorruptInput("The file has no directory.")
    size = _read_size(block)
    pixel_format = block.bytes_of(_PIXEL_FORMAT) or b""
    if pixel_format not in _FORMATS:
        raise CorruptInput(f"The pixel format {pixel_format.hex()} is not supported.")
    mode, bits = _FORMATS[pixel_format]
    dpi = _read_dpi(block)
    profile = block.bytes_of(_PROFILE)
    if _orientation(block) >= _EXCHANGED:
        size = size[::-1]
        dpi = dpi and dpi[::-1]
    read = partial(_read, data, block, mode, bits)
    if bits == _LIGHT:
        raster = linear_light.raster(read, mode, size, bits=_LIGHT, exposure=exposure)
    else:
        linear_light.ignore_exposure(exposure)
        raster = Raster(
            _frames(read, mode, profile, deep=False),
            deep_frames=_frames(read, mode, profile, deep=True) if bits == 16 else None,
            sample=pillow.sample(mode, profile),
            sizes=[size],
        )
    return replace(
        raster,
        dpi=dpi,
        metadata=ImageMetadata(
            exif=exif_data.from_file(block),
            xmp=pillow.upright_xmp(block.bytes_of(exif_data.XMP)),
            iptc=block.bytes_of(exif_data.IPTC) or iptc_data.from_resources(block.bytes_of(exif_data.PHOTOSHOP) or b""),
        ),
        source=replace(raster.source, turned=_orientation(block) > 1),
    )


def _read_size(block: exif_data.Block) -> Size:
    """Width and height. Raises TooLarge, and CorruptInput if the directory and the codestream differ."""
    width, height = block.integer(_WIDTH), block.integer(_HEIGHT)
    start = block.integer(_PARTS[0][0])
    header = block.data[start : start + 24]
    if not header.startswith(_CODESTREAM) or len(header) < 24 or not width or not height:
        raise CorruptInput("The file has no codestream.")
    stored = struct.unpack_from(">2H" if header[10] & _SHORT_SIDES else ">2I", header, 12)
    check_size(width, height)
    check_size(stored[0] + 1, stored[1] + 1)
    if width > stored[0] + 1 or height > stored[1] + 1:
        raise CorruptInput("The codestream has fewer pixels than the directory states.")
    return width, height


def _read_dpi(block: exif_data.Block) -> tuple[float, float] | None:
    fields = [block.bytes_of(tag) or b"" for tag in (_ACROSS, _DOWN)]
    if [len(field) for field in fields] != [4, 4]:
        return None
    return pillow.plausible_dpi([struct.unpack(f"{block.order}f", field)[0] for field in fields])


def _orientation(block: exif_data.Block) -> int:
    """The EXIF orientation with the effect of the transformation in the file."""
    number = block.integer(_ORIENTATION)
    return _ORIENTATIONS[number] if number < len(_ORIENTATIONS) else 1


def _frames(read: Callable[[], NDArray[Any]], mode: str, profile: bytes | None, *, deep: bool) -> Iterator[Frame]:
    array = read()
    if array.shape[2:] == (5,):
        yield Frame(pillow.transparent_inks(array, np.iinfo(array.dtype).max, profile))
        return
    frame = Frame(Image.fromarray(array, mode) if array.dtype.itemsize == 1 else DeepPixels(array, mode), profile)
    yield frame if deep else replace(frame, pixels=frame.image)


def _read(data: bytes, block: exif_data.Block, mode: str, bits: int) -> NDArray[Any]:
    """The upright samples of the mode: integers of 8 or 16 bits, or floats."""
    pixel_format = block.bytes_of(_PIXEL_FORMAT) or b""
    number = pixel_format[-1] if pixel_format.startswith(_PREFIX) else None
    if number in _READ_AS:
        data = data.replace(pixel_format, _PREFIX + bytes([_READ_AS[number]]), 1)
    # The decoder would mirror images, and fail to turn them.
    turned, upright = (
        struct.pack("<HHII", _ORIENTATION, _LONG, 1, number) for number in (block.integer(_ORIENTATION), 0)
    )
    array = imagecodecs.jpegxr_decode(data.replace(turned, upright, 1))
    array = array * np.uint8(255) if array.dtype == np.bool_ else array
    if number in _FIXED:
        kind, white = _FIXED[number]
        array = array.view(kind) / np.float32(white)
    array = array.astype(np.float32) if bits == _LIGHT else array
    if array.ndim == 3 and number not in _TRANSPARENT_INKS:
        array = array[..., : len(mode)]  # without an unused band
    if pixel_format in _PREMULTIPLIED:
        array = _divided(array)
    return pillow.apply_orientation(array, _orientation(block))


def _divided(array: NDArray[Any]) -> NDArray[Any]:
    """Colors that are multiplied by alpha without it."""
    is_light = array.dtype.kind == "f"
    maximum = 1 if is_light else np.iinfo(array.dtype).max
    alpha = array[..., 3:].astype(np.float32) / maximum
    colors = array[..., :3] / np.where(alpha == 0, 1, alpha)
    colors = colors if is_light else np.minimum(colors + 0.5, maximum)
    return np.dstack((colors.astype(array.dtype), array[..., 3:]))


_CAPABILITIES = TargetCapabilities(
    ("L", "RGB", "RGBA", "CMYK"),
    deep_modes=("L", "RGB", "RGBA", "CMYK"),
    icc=True,
    encoding=True,
    metadata=frozenset({"exif", "xmp", "iptc", "resolution"}),
)


@conversion(RASTER, JXR, loss=Loss.DETAIL, cost=6, memory=40, capabilities=_CAPABILITIES)
def encode(raster: Raster, *, quality: Quality = 85, lossless: Lossless = False) -> bytes:
    """Images narrower than 32 pixels are written without loss."""
    frame = raster.first_frame()
    pixels = frame.pixels
    exact = lossless or frame.size[0] < _MIN_LOSSY_WIDTH
    data = imagecodecs.jpegxr_encode(
        pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels),
        None if exact else quality,
        photometric="CMYK" if pixels.mode == "CMYK" else None,
        resolution=raster.dpi,
    )
    return tiff.with_tags(bytes(data), raster, {_PROFILE: frame.icc_profile})
