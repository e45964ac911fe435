"""Parts of images, and images on a larger canvas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from PIL import Image

from engine import MAX_PIXELS, DeepPixels, Frame, InvalidOption, Raster, Size, color, lazy_imports
from plugins._color import profiles
from plugins._pixels import attention, resampling
from plugins._pixels.sizes import ATTENTION, Focus, Rectangle, focus_of, pixel_box

with lazy_imports():
    import numpy as np

Fill: TypeAlias = tuple[int, int, int, int]
"""Red, green, blue and alpha of a color in sRGB."""


def cut(frame: Frame, rectangle: Rectangle) -> Frame:
    """The part of a frame that a rectangle selects, in pixels of its full size."""
    if frame.cropped:
        return replace(frame, cropped=False, full_size=rectangle[2:])
    left, top, right, bottom = box = pixel_box(rectangle, frame.full_size or frame.size, frame.size)
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        array = np.ascontiguousarray(pixels.array[top:bottom, left:right])
        return replace(frame, pixels=replace(pixels, array=array), full_size=rectangle[2:])
    return replace(frame, pixels=pixels.crop(box), full_size=rectangle[2:])


def with_focus(
    raster: Raster, gravity: str, part: Callable[[Size], tuple[Size, Size]]
) -> tuple[Raster, Callable[[Frame], Focus]]:
    """The raster, and a function that returns the point around which a part of a frame is kept.

    `part` returns the size of the part of an image, and the size of the whole to which it refers. An animation has the
    point of its first frame, because its frames would move otherwise, and a gain map the one of its image.
    """
    if gravity != ATTENTION:
        point = focus_of(gravity)
        return raster, lambda _: point

    def salient(frame: Frame) -> Focus:
        return attention.salient_point(frame, *part(frame.full_size or frame.size))

    if not raster.animated and raster.gain_map is None:
        return raster, salient
    (first, *_), raster = raster.read_ahead(1)
    found = salient(first)
    return raster, lambda _: found


def on_canvas(frame: Frame, size: Size, position: tuple[int, int], fill: Fill | None) -> Frame:
    """`frame` on a canvas of `size`. The canvas has alpha if the frame has, or if `fill` is translucent.

    Without `fill`, the canvas is transparent if the frame has alpha, otherwise white.
    """
    if frame.size == size:
        return frame
    if isinstance(frame.pixels, Image.Image):
        frame = replace(frame, pixels=resampling.continuous(frame.pixels))
    mode = frame.pixels.mode
    red, green, blue, alpha = fill or (*color.WHITE, 0 if mode in ("LA", "RGBA") else 255)
    alpha = alpha // 255 * 255  # a translucent background is laid under the whole image later
    if (mode in ("L", "LA") and not red == green == blue) or (mode == "CMYK" and alpha < 255):
        frame = profiles.in_color_space(frame, gray=False)
        mode = frame.pixels.mode
    has_alpha = mode in ("LA", "RGBA")
    profile = color.matching_profile(mode, frame.icc_profile)
    samples = color.color_in((red, green, blue), mode.removesuffix("A"), profile)
    if has_alpha or alpha < 255:
        samples, mode = (*samples, alpha), mode if has_alpha else mode + "A"
    x, y = position
    pixels = frame.pixels
    if isinstance(pixels, Image.Image):
        canvas = Image.new(mode, size, samples)
        canvas.paste(pixels.convert(mode), (x, y))
        return replace(frame, pixels=canvas)
    array = np.full((size[1], size[0], len(samples)), np.array(samples) * 257, np.uint16)
    part = array[y : y + frame.size[1], x : x + frame.size[0]]
    part[...] = 65535
    source = pixels.array if pixels.array.ndim == 3 else pixels.array[..., None]
    part[..., : source.shape[2]] = source
    return replace(frame, pixels=DeepPixels(array if len(samples) > 1 else array[..., 0], mode))


def continuous(sample: Frame) -> Frame:
    """A frame in a mode whose samples can be averaged."""
    is_image = isinstance(sample.pixels, Image.Image)
    return replace(sample, pixels=resampling.continuous(sample.image)) if is_image else sample


def check_result(size: Size, param: str) -> Size:
    """The size. Raises InvalidOption if it exceeds MAX_PIXELS because of the option `param`."""
    if size[0] * size[1] > MAX_PIXELS:
        raise InvalidOption(
            f"The result must have at most {MAX_PIXELS} pixels.",
            reason="out_of_range",
            param=param,
            details={"max_pixels": MAX_PIXELS, "width": size[0], "height": size[1]},
        )
    return size
