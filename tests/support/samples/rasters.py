"""Rasters of generated images."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyvips
from PIL import Image

from engine import DeepPixels, Frame, Raster, Size
from plugins.operations import geometry


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
