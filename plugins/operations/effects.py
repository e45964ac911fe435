"""Changes of colors and filters of images, applied in this order.

They work on the samples as the image has them, in 8 or 16 bits and with its profile; CMYK and high dynamic range
become sRGB for changes of colors, because their samples are no such brightness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from PIL import Image
from pydantic import Field

from engine import RASTER, DeepPixels, Frame, Raster, color, lazy_imports, transform
from plugins._color import profiles
from plugins._pixels import canvases, resampling
from plugins.operations import geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

Brightness: TypeAlias = Annotated[
    float, Field(ge=0, le=4, examples=[1.2], description="Factor of all colors, as brightness() of CSS.")
]
Contrast: TypeAlias = Annotated[
    float, Field(ge=0, le=4, examples=[1.2], description="Factor of the distance to middle gray, as contrast() of CSS.")
]
Saturation: TypeAlias = Annotated[
    float,
    Field(ge=0, le=4, examples=[0], description="Factor of the distance to gray, as saturate() of CSS; 0 is gray."),
]
Gamma: TypeAlias = Annotated[
    float, Field(ge=0.1, le=10, examples=[1.4], description="Above 1 brightens mid-tones, as -gamma of ImageMagick.")
]
Blur: TypeAlias = Annotated[
    float,
    Field(ge=0, le=100, examples=[3], description="Standard deviation in pixels of a Gaussian blur of the result."),
]
Sharpen: TypeAlias = Annotated[
    float, Field(ge=0, le=10, examples=[1], description="Standard deviation in pixels of an unsharp mask; 1 is usual.")
]
Pixelate: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, examples=[8], description="Side in pixels of the squares that get their mean color.")
]

MODULES = resampling.MODULES
_MIN_SIGMA = 0.1  # A Gaussian below it changes nothing.
_STRIP = 64  # rows whose saturation is changed at a time
_LUMINANCE = (0.213, 0.715, 0.072)  # shares of red, green and blue, as in CSS


@transform(RASTER, after=geometry.resize, memory=12)
def adjust(
    raster: Raster, *, brightness: Brightness = 1, contrast: Contrast = 1, saturation: Saturation = 1, gamma: Gamma = 1
) -> Raster:
    """Changes brightness, then contrast, saturation and gamma. Results beyond the range of the samples are cut."""

    def lightened(levels: NDArray[Any]) -> NDArray[Any]:
        return (np.clip(levels * brightness, 0, 1) - 0.5) * contrast + 0.5

    def change(frame: Frame) -> Frame:
        if frame.pixels.mode in ("CMYK", "LAB"):
            color.warn_converted(frame.pixels.mode)
            frame = profiles.in_color_space(frame, gray=False)
        pixels = canvases.continuous(frame).pixels
        if brightness != 1 or contrast != 1:
            pixels = _map_levels(pixels, lightened)
        if saturation != 1 and pixels.mode in ("RGB", "RGBA"):
            pixels = _saturated(pixels, saturation)
        if gamma != 1:
            pixels = _map_levels(pixels, lambda levels: levels ** (1 / gamma))
        return replace(frame, pixels=pixels)

    return profiles.map_frames(raster.tone_mapped(), change)


def _map_levels(
    pixels: Image.Image | DeepPixels, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> Image.Image | DeepPixels:
    """Applies a function to the levels from 0 to 1 of all colors, but not of alpha."""
    maximum = 255 if isinstance(pixels, Image.Image) else 65535
    table = np.clip(change(np.arange(maximum + 1) / maximum), 0, 1) * maximum + 0.5
    if isinstance(pixels, Image.Image):
        levels = [int(level) for level in table]
        alpha = range(256)
        bands = pixels.getbands()
        return pixels.point([level for band in bands for level in (alpha if band == "A" else levels)])
    colors = slice(None) if pixels.mode in ("L", "RGB") else slice(-1)
    array = pixels.array.copy()
    array[..., colors] = table.astype(np.uint16)[array[..., colors]]
    return replace(pixels, array=array)


def _saturated(pixels: Image.Image | DeepPixels, factor: float) -> Image.Image | DeepPixels:
    gray = np.array(_LUMINANCE, np.float32) * np.float32(1 - factor)
    array = np.array(pixels) if isinstance(pixels, Image.Image) else pixels.array.copy()
    maximum = np.iinfo(array.dtype).max
    for top in range(0, len(array), _STRIP):
        colors = array[top : top + _STRIP, :, :3].astype(np.float32)
        colors = colors * np.float32(factor) + (colors @ gray)[..., None]
        array[top : top + _STRIP, :, :3] = np.clip(colors + 0.5, 0, maximum)
    return Image.fromarray(array, pixels.mode) if isinstance(pixels, Image.Image) else replace(pixels, array=array)


@transform(RASTER, after=adjust, memory=20)
def blur(raster: Raster, *, blur: Blur = 0) -> Raster:
    """Blurs each frame."""
    return _filtered(raster, partial(resampling.gaussian, sigma=blur)) if blur >= _MIN_SIGMA else raster


@transform(RASTER, after=blur, memory=24)
def sharpen(raster: Raster, *, sharpen: Sharpen = 0) -> Raster:
    """Adds the difference to a blurred image to each frame."""
    if sharpen < _MIN_SIGMA:
        return raster
    return _filtered(raster, lambda values: 2 * values - resampling.gaussian(values, sharpen))


@transform(RASTER, after=sharpen, memory=16)
def pixelate(raster: Raster, *, pixelate: Pixelate = 1) -> Raster:
    """Replaces squares of pixels, from the top left, by their mean color."""

    def change(values: NDArray[Any]) -> NDArray[Any]:
        means = np.asarray(Image.fromarray(values).reduce(pixelate))
        height, width = values.shape
        return means.repeat(pixelate, axis=0)[:height].repeat(pixelate, axis=1)[:, :width]

    return _filtered(raster, change) if pixelate > 1 else raster


def _filtered(raster: Raster, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Raster:
    """The raster whose bands are changed. A gain map, which would not fit any more, is dropped."""

    def convert(frame: Frame) -> Frame:
        return replace(frame, pixels=resampling.filter_bands(canvases.continuous(frame).pixels, change))

    raster = raster.tone_mapped() if raster.gain_map else raster
    return profiles.map_frames(raster, convert)
