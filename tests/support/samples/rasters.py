"""Rasters of generated pictures."""

import struct
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyvips
from PIL import Image, ImageCms

from engine import DeepPixels, Frame, Raster, Size
from plugins import geometry


def with_8_bits(frame: Frame) -> Frame:
    return replace(frame, pixels=frame.image)


def raster_of(*images: Image.Image | DeepPixels, **fields: Any) -> Raster:
    frames = [Frame(image, duration=40.0) for image in images]
    deep = isinstance(images[0], DeepPixels)
    sizes = [image.size for image in images]
    eight = [with_8_bits(frame) for frame in frames]
    return Raster(eight, count=len(images), deep_frames=frames if deep else None, sizes=sizes, **fields)


def only(raster: Raster) -> Frame:
    (frame,) = raster.frames if raster.deep_frames is None else raster.deep_frames
    return frame


def resize(raster: Raster, **options: Any) -> Raster:
    return geometry.resize(raster, options)


def photo(size: Size = (240, 160), mode: str = "RGB") -> Image.Image:
    """Smooth gradients, edges and some noise."""
    x, y = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]))
    noise = np.random.default_rng(1).normal(0, 0.03, (size[1], size[0]))
    bands = (x, y, 0.5 + 0.5 * np.sin(12 * x * y) + noise, np.where((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.2, 1.0, 0.0))
    samples = np.clip(np.dstack(bands) * 255, 0, 255).astype(np.uint8)
    return Image.fromarray(samples, "RGBA").convert(mode)


def with_16_bits(image: Image.Image) -> DeepPixels:
    rng = np.random.default_rng(2)
    widened = DeepPixels.from_image(image)
    low = rng.integers(0, 256, widened.array.shape, np.uint16)
    return DeepPixels(widened.array // 256 * 256 + low, widened.mode)


def vips_image(image: Image.Image | DeepPixels) -> Any:
    array = image.array if isinstance(image, DeepPixels) else np.asarray(image)
    return pyvips.Image.new_from_array(array)


@cache
def srgb_profile() -> bytes:
    """A profile of sRGB. It is made once, because it contains the time at which it was made."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def swapped_profile() -> bytes:
    """A profile with red and green swapped, so that ignoring it changes the colors."""
    profile = bytearray(srgb_profile())
    red, green = profile.find(b"rXYZ"), profile.find(b"gXYZ")
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(profile)


def ink_profile() -> bytes:
    """A profile for CMYK: each ink darkens by a quarter of the lightness, without a color."""
    grid = [255 - 63 * bin(corner).count("1") for corner in range(16)]
    identity = bytes(range(256))
    table = bytes(value for lightness in grid for value in (lightness, 128, 128))
    matrix = b"".join(struct.pack(">i", 65536 * (index % 4 == 0)) for index in range(9))
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + matrix + identity * 4 + table + identity * 3
    text = b"text" + bytes(4) + b"Test\0"
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    tags, offset, data = [], 132 + 12 * 4, b""
    for name, body in ((b"A2B0", lut), (b"cprt", text), (b"desc", text), (b"wtpt", white)):
        tags.append(name + struct.pack(">II", offset + len(data), len(body)))
        data += body + bytes(-len(body) % 4)
    header = struct.pack(">I4xI4s4s4s", offset + len(data), 0x02400000, b"prtr", b"CMYK", b"Lab ")
    header += bytes(12) + b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + b"".join(tags) + data
